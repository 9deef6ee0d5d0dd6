"""What may change on a HyperPod cluster that is up: the facts are in updates.csv, and this looks a path up in them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table
from trainwright.platforms.parallelcluster.updates import Effect

PROPERTIES = "Resources.Cluster.Properties."
COUNT = "InstanceGroups[].InstanceCount"
FEWER = Effect("stop", "nodes are removed, SageMaker chooses which, and their jobs end")
GONE = Effect("stop", "the group's nodes are removed, and their jobs end")
NEW = Effect("live", "a new group of nodes is added")


@cache
def _effects() -> dict[str, Effect]:
    rows = read_table(Path(__file__).with_name("updates.csv")).records()
    return {row["path"]: Effect(row["effect"], row["say"]) for row in rows}


def effect_of(path: str, old: object, new: object) -> Effect:
    """The effect of changing a value of the template from `old` to `new` (None: not there)."""
    plain = re.sub(r"\[[^\]]*\]", "[]", path.removeprefix(PROPERTIES))
    if plain == "InstanceGroups[]":
        return NEW if old is None else GONE
    if plain == COUNT and isinstance(old, int) and isinstance(new, int) and new < old:
        return FEWER
    while plain:
        for known in (plain, plain.removesuffix("[]")):
            if known in _effects():
                return _effects()[known]
        plain = plain.rpartition(".")[0]
    return Effect("live", "changes at once")
