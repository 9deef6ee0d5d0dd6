"""In which zones an accelerated instance type is offered, by zone id. Offered is not available: a type may have no free
capacity in a zone that offers it."""

from __future__ import annotations

from trainwright.catalog.regions import find_region
from trainwright.catalog.tables import cached, shipped_table


def offered_zones(instance: str, region: str) -> tuple[str, ...] | None:
    """Zone ids of the region that offer the type; None where that is not known."""
    return _offerings().get((instance, region))


@cached
def zones_of(region: str) -> tuple[str, ...]:
    """The zone ids of a region, as far as some accelerated type is offered there."""
    return tuple(sorted({zone for (_, there), zones in _offerings().items() if there == region for zone in zones}))


def offerings_date() -> str:
    return shipped_table("offerings.csv").notes["date"]


@cached
def _offerings() -> dict[tuple[str, str], tuple[str, ...]]:
    offers: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in shipped_table("offerings.csv").records():
        known = find_region(row["region"])
        if known is not None:
            zones = tuple(f"{known.zone_prefix}-az{number}" for number in row["zones"].split())
            offers[row["instance"], row["region"]] = zones
    return offers
