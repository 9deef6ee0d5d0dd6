"""What a changed parameter does to a deployed stack; the facts are in updates.csv. Some values may change in one
direction only, or by large steps only: these are here, and what AWS would refuse counts as a replacement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table

CAPACITIES = ("lustre", "openzfs")
LEAST_GROWTH = {"openzfs": 1.1}
FIXED = ("SCRATCH_1",)  # deployments that keep their size


@cache
def parameter_effects() -> dict[tuple[str, str], tuple[str, str]]:
    """(template, parameter) -> (effect, explanation) of a change that AWS takes."""
    table = read_table(Path(__file__).with_name("updates.csv"))
    return {(row["template"], row["parameter"]): (row["effect"], row["say"]) for row in table.records()}


def parameter_effect(
    template: str, parameter: str, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[str, str]:
    """(effect, explanation) of changing a parameter between two sets of a stack's parameters."""
    refusal = ""
    if template in CAPACITIES and parameter == "Capacity":
        refusal = _capacity(template, before, after)
    elif (template, parameter) == ("eks-cluster", "Version"):
        refusal = _version(before.get(parameter, ""), after.get(parameter, ""))
    return ("replace", refusal) if refusal else parameter_effects()[template, parameter]


def _capacity(template: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Why a file system cannot have another size; empty where it can."""
    old, new = (int(side.get("Capacity", "0")) for side in (before, after))
    if new < old:
        return f"FSx never shrinks a file system: {new} GiB would be a new empty one beside that of {old} GiB"
    if before.get("DeploymentType") in FIXED:
        return f"FSx does not grow a file system of type {before['DeploymentType']}"
    least = LEAST_GROWTH.get(template, 1.0) * old
    return f"FSx grows it by 10 % or more: from {old} GiB to {least:.0f} GiB at least" if new < least else ""


def _version(old: str, new: str) -> str:
    """Why a control plane cannot have another version; empty where it can."""
    pair = [re.fullmatch(r"1\.(\d+)", version) for version in (old, new)]
    if pair[0] is None or pair[1] is None:
        return ""
    step = int(pair[1][1]) - int(pair[0][1])
    if step < 0:
        return "a control plane of EKS never goes back to an older version"
    return f"EKS goes up by one version at a time: 1.{int(pair[0][1]) + 1} first" if step > 1 else ""
