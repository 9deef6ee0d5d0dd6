"""AWS regions, and the two ways to name a zone: a zone *name* (us-east-2a) means another place in every account,
a zone *id* (use2-az3) means the same one everywhere. A reservation is made in a zone id."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.catalog.tables import cached, shipped_table
from trainwright.errors import UserError, did_you_mean

ZONE_NAME = re.compile(r"([a-z]{2,4}(?:-[a-z]+)+-\d+)(?:-[a-z]+-\d+)?[a-z]")
ZONE_ID = re.compile(r"([a-z]+\d+)(?:-[a-z]+\d+)?-az\d+")


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    zone_prefix: str  # `use2` of `use2-az3`
    title: str


@cached
def regions() -> tuple[Region, ...]:
    return tuple(Region(**row) for row in shipped_table("regions.csv").records())


def find_region(name: str) -> Region | None:
    return _by_name().get(name)


def region(name: str) -> Region:
    match = find_region(name)
    if match is None:
        raise UserError(
            f"no region {name!r} in the catalog",
            fix=did_you_mean(name, _by_name()) or "`trainwright catalog list --kind regions` names them all",
        )
    return match


def zone_kind(zone: str) -> str | None:
    """`id` for use2-az3, `name` for us-east-2a, None for neither."""
    if ZONE_ID.fullmatch(zone):
        return "id"
    return "name" if ZONE_NAME.fullmatch(zone) else None


def region_of_zone(zone: str) -> Region | None:
    """The region a zone belongs to, from its id or its name."""
    by_id = ZONE_ID.fullmatch(zone)
    if by_id:
        return next((r for r in regions() if r.zone_prefix == by_id[1]), None)
    by_name = ZONE_NAME.fullmatch(zone)
    return find_region(by_name[1]) if by_name else None


@cached
def _by_name() -> dict[str, Region]:
    return {r.name: r for r in regions()}
