"""EC2 quotas: how many vCPUs of a group of families an account may run in a region, and the code to ask for more."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType, instance
from trainwright.catalog.tables import cached, shipped_table


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota, and how much of it a request uses."""

    code: str
    name: str
    kind: str  # on-demand | spot
    vcpus: int


def quota_for(instance_name: str, count: int, kind: str = "on-demand") -> Quota | None:
    """The quota that `count` instances count against. None: nothing counts (capacity blocks, HPC spot)."""
    if kind == "capacity-block":
        return None
    type_ = instance(instance_name)
    row = _row(type_)
    prefix = "spot" if kind == "spot" else "on_demand"
    code = row[f"{prefix}_code"]
    return Quota(code, row[f"{prefix}_name"], kind, vcpus_needed(type_, count)) if code else None


def vcpus_needed(type_: InstanceType, count: int) -> int:
    return type_.vcpus * count


def _row(type_: InstanceType) -> dict[str, str]:
    matches = [(len(stem), row) for stem, row in _stems() if type_.family.startswith(stem)]
    return max(matches, key=lambda match: match[0])[1]


@cached
def _stems() -> tuple[tuple[str, dict[str, str]], ...]:
    rows = shipped_table("quotas.csv").records()
    return tuple((stem, row) for row in rows for stem in row["families"].split("|"))
