"""What a job costs: dollars per hour and per trillion tokens, with the date of the price."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.prices import price

HOUR = 3600.0


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
