"""The keys of SageMaker's CreateCluster request, as a table, and those of HyperPod's provisioning parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table

_TABLE = Path(__file__).parent / "data" / "hyperpod_keys.csv"
_TYPES = "ClusterInstanceType"
# UpdateCluster takes the same file with this key more.
_OF_UPDATES = ("InstanceGroupsToDelete",)


@dataclass(frozen=True, slots=True)
class Key:
    """What the service model says about one key."""

    kind: str  # map | text | number | flag | free; with an s: a list of these
    required: bool = False
    least: int | None = None  # of a number, of a text's letters, of a list's elements
    most: int | None = None
    pattern: re.Pattern[str] | None = None
    allowed: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.kind.endswith("s")


def _number(text: str) -> int | None:
    return int(text) if text else None


@cache
def create_cluster() -> Mapping[str, Mapping[str, Key]]:
    """Path of a section -> its keys. The top is the empty path."""
    rows = list(read_table(_TABLE).records())
    types = tuple(next(row["allowed"] for row in rows if row["parent"] == _TYPES).split("|"))
    sections: dict[str, dict[str, Key]] = {}
    for row in rows:
        allowed = types if row["allowed"] == _TYPES else tuple(row["allowed"].split("|")) if row["allowed"] else ()
        pattern = re.compile(row["pattern"]) if row["pattern"] else None
        key = Key(row["kind"], row["required"] == "yes", _number(row["least"]), _number(row["most"]), pattern, allowed)
        sections.setdefault(row["parent"], {})[row["key"]] = key
    sections[""] |= {name: Key("texts") for name in _OF_UPDATES}
    return sections


def hyperpod_types() -> tuple[str, ...]:
    """The instance types of HyperPod, with their prefix: ml.p5.48xlarge."""
    return create_cluster()["InstanceGroups"]["InstanceType"].allowed


# The file that HyperPod's agent and the lifecycle scripts read; the last two keys are those of the reference's scripts.
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
PROVISIONING: Mapping[str, Mapping[str, Key]] = {
    "": {
        "version": Key("text", True, allowed=("1.0.0",)),
        "workload_manager": Key("text", True, allowed=("slurm",)),
        "controller_group": Key("text", True, pattern=_NAME),
        "login_group": Key("text"),
        "worker_groups": Key("maps", True, least=1),
        "fsx_dns_name": Key("text"),
        "fsx_mountname": Key("text"),
        "fsx_openzfs_dns_name": Key("text"),
        "slurm_configurations": Key("free"),
    },
    "worker_groups": {
        "instance_group_name": Key("text", True, pattern=_NAME),
        "partition_name": Key("text", True, pattern=re.compile(r"[A-Za-z0-9._-]+")),
    },
}
