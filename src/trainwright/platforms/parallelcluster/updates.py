"""What may change on a running cluster. ParallelCluster gives every field an update policy; the table is data, and
this looks a path up in it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table

DATA = Path(__file__).parent / "data"
RESIZE = "RESIZE_UPDATE_STRATEGY_ON_REMOVE"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to a running cluster. `kind` is live, drain, stop or replace, from harmless to disruptive."""

    kind: str
    say: str


@cache
def policies() -> dict[str, str]:
    """Path of a field, lists as `[]` -> name of its update policy."""
    return {row["path"]: row["policy"] for row in read_table(DATA / "updates.csv").records()}


@cache
def _effects() -> dict[str, Effect]:
    tables = tomllib.loads((DATA / "effects.toml").read_text(encoding="utf-8"))
    kinds = {kind: table for kind, table in tables.items() if isinstance(table, dict)}
    return {policy: Effect(kind, table["say"]) for kind, table in kinds.items() for policy in table["policies"]}


def policy_of(path: str) -> str:
    """The policy of a path such as `Scheduling.SlurmQueues[train].CapacityType`; a field the table does not name has
    its parent's."""
    plain = re.sub(r"\.Sequence(\[[^\]]*\])?", "", re.sub(r"\[[^\]]*\]", "[]", path))
    while plain:
        for known in (plain, plain.removesuffix("[]")):
            if known in policies():
                return policies()[known]
        plain = plain.rpartition(".")[0]
    return "UNKNOWN"


def effect_of(path: str, old: object, new: object, grows_with: int = 0) -> Effect:
    """The effect of changing a field from `old` to `new` (None: not there). `grows_with` is by how much MaxCount beside
    a MinCount grows: nodes that are added need no stop."""
    policy = policy_of(path)
    if policy == RESIZE and _only_grows(path, old, new, grows_with):
        return _effects()["SUPPORTED"]
    return _effects()[policy]


def _only_grows(path: str, old: object, new: object, grows_with: int) -> bool:
    if path.endswith("]"):
        return old is None
    if not (isinstance(old, int) and isinstance(new, int)):
        return False
    return new - old <= grows_with if path.endswith("MinCount") and new > old else new > old
