"""CFG: the zones of Terraform's resources, which lie in the region of the provider."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.regions import region_of_zone
from trainwright.check.model import File, Value, known
from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.terraform_variables import filled, filled_beside
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem

_KEYS = ("availability_zone", "availability_zone_id")


def zones_of_other_regions(file: File) -> Iterator[Problem]:
    """A zone that the region of the directory's one provider does not have."""
    if "availability_zone" not in file.text:
        return
    blocks = filled(file.text, file.path)
    zones = [zone for block in blocks if block.kind == "resource" for zone in _zones(block)]
    region = _region([*blocks, *filled_beside(file.path)]) if zones else ""
    for zone in zones:
        there = region_of_zone(zone.value)
        if region and there is not None and there.name != region:
            yield problem(
                zone,
                f"zone {zone.value} is in {there.name}, and the provider works in {region}",
                f"name a zone of {region}",
                why="EC2 refuses the resource: a zone belongs to one region.",
            )


def _zones(block: Block) -> list[Value[str]]:
    if block.body.get("provider") is not None or block.body.get("region") is not None:
        return []
    zones = (text_at(block.body, key) for key in _KEYS)
    return [zone for zone in zones if zone is not None and zone.known]


def _region(blocks: list[Block]) -> str:
    """The region of the one AWS provider; empty where it is not stated, or there are several."""
    providers = [block for block in blocks if block.kind == "provider" and block.labels == ("aws",)]
    return known(text_at(providers[0].body, "region")) or "" if len(providers) == 1 else ""
