"""What a job costs: dollars an hour, per trillion tokens and for the whole run, with the day of every price."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.prices import price

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """None of these without a dated price."""

    usd_hour: float
    usd_per_trillion_tokens: float
    kind: str
    region: str
    date: str
    source: str


def cost(instance: str, nodes: int, tokens_per_s: float, effective: float, region: str, kind: str) -> Cost | None:
    found = price(instance, region, kind)
    if found is None:
        return None
    hourly = found.usd_hour * nodes
    per_trillion = hourly / HOUR / (tokens_per_s * effective) * 1e12
    return Cost(hourly, per_trillion, found.kind, region, found.date, found.source)
