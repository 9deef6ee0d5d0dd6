"""What a job costs: dollars per hour and per trillion tokens, with the date of the price."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.prices import price
from trainwright.predict.goodput import START_S

HOUR = 3600.0
DAY = 86_400.0
MONTH_DAYS = 30.4
# EC2 Capacity Blocks: instances per block, and days (each day to two weeks, then whole weeks to half a year).
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
BLOCK_DAYS = (*range(1, 15), *range(21, 183, 7))


@dataclass(frozen=True, slots=True)
class Cost:
    """Computed from one dated price."""

    usd_hour: float
    usd_per_trillion_tokens: float
    kind: str
    region: str
    date: str
    source: str


def cost(instance: str, nodes: int, tokens_per_s: float, region: str, kind: str) -> Cost | None:
    """`tokens_per_s` counts only tokens that are kept, after failures. None where the catalog has no price."""
    listed = price(instance, region, kind)
    if listed is None:
        return None
    hourly = listed.usd_hour * nodes
    return Cost(hourly, hourly / HOUR / tokens_per_s * 1e12, listed.kind, region, listed.date, listed.source)


def billed_days(days: float, kind: str) -> float:
    """Days that are paid for: a capacity block has fixed lengths; a longer training takes several in a row."""
    if kind != "capacity-block":
        return days
    longest = float(BLOCK_DAYS[-1])
    full, rest = divmod(days, longest)
    return full * longest + next(float(length) for length in (0, *BLOCK_DAYS) if length >= rest)


def training_days(tokens: float, kept_tokens_per_s: float) -> float:
    """From the launch of the instances to the last step."""
    return (START_S + tokens / kept_tokens_per_s) / DAY


def training_usd(usd_hour: float, days: float, kind: str, storage_usd_month: float) -> float:
    """Instances and storage of one training."""
    return usd_hour * 24 * billed_days(days, kind) + storage_usd_month / MONTH_DAYS * days
