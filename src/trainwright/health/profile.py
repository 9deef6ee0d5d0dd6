"""What a node is supposed to have, by its instance type: the yardstick of every check that counts something."""

from __future__ import annotations

import csv
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.errors import UserError, did_you_mean
from trainwright.health.node import Node

DATA = Path(__file__).parent / "data"
DMI = "/sys/devices/virtual/dmi/id"
COUNTED = ("gpus", "neuron", "efa", "nvlinks", "nvme_disks")


@dataclasses.dataclass(frozen=True)
class Profile:
    """The parts of a node. A count of None is not known: then nothing is judged by it."""

    instance: str = ""
    accelerator: str = ""
    gpus: int | None = None
    neuron: int | None = None
    efa: int | None = None
    nvlinks: int | None = None  # of each GPU
    vcpus: int | None = None
    memory_mib: int | None = None
    nvme_disks: int | None = None
    stated: tuple[str, ...] = ()  # the counts a person stated


def rows(name: str) -> list[dict[str, str]]:
    """A data file's rows, without its comments."""
    with (DATA / name).open(encoding="utf-8") as handle:
        return list(csv.DictReader(line for line in handle if not line.startswith("#")))


@cache
def known_profiles() -> dict[str, Profile]:
    made = {}
    for row in rows("nodes.csv"):
        counts = {name: int(value) for name, value in row.items() if name not in ("instance", "accelerator")}
        made[row["instance"]] = Profile(row["instance"], row["accelerator"], **counts)  # type: ignore[arg-type]
    return made


def instance_type(node: Node) -> str:
    """The EC2 instance type as the hypervisor states it, or nothing on other machines."""
    if "Amazon" not in (node.read(f"{DMI}/sys_vendor") or ""):
        return ""
    return node.read(f"{DMI}/product_name") or ""


def profile_of(node: Node, instance: str = "", expect: tuple[str, ...] = ()) -> Profile:
    """The profile of a node's instance type, or of a named one; `expect` (`efa=16`) overrides single counts."""
    if instance and instance not in known_profiles():
        raise UserError(
            f"no accelerated instance type {instance!r} is known",
            fix=did_you_mean(instance, known_profiles()) or "leave --instance out: the node knows its type",
        )
    name = instance or instance_type(node)
    profile = known_profiles().get(name, Profile(name))
    stated: dict[str, Any] = dict(_expected(word) for word in expect)
    return dataclasses.replace(profile, **stated, stated=tuple(stated))


def _expected(word: str) -> tuple[str, int]:
    name, _, value = word.partition("=")
    if name not in COUNTED or not value.isdigit():
        fix = f"NAME=COUNT, with NAME one of {', '.join(COUNTED)}"
        raise UserError(f"{word!r} is not a count to expect", where="--expect", fix=fix)
    return name, int(value)
