"""The keys of Kubernetes' own objects and the types of their values, as a table of all versions together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table

TABLE = Path(__file__).parent / "data" / "kubernetes_keys.csv"
VERSIONS = "1.25 to 1.37"
# Objects whose keys the table holds, by apiVersion and kind.
OBJECTS = {
    **{("v1", kind): kind for kind in ("Pod", "PodTemplate", "Service", "PersistentVolumeClaim", "PersistentVolume")},
    **{("v1", kind): kind for kind in ("ConfigMap", "Secret")},
    **{("batch/v1", kind): kind for kind in ("Job", "CronJob")},
    **{("apps/v1", kind): kind for kind in ("Deployment", "StatefulSet", "DaemonSet")},
}
# Versions that had some of these objects and are gone, with the release that took them away.
REMOVED = {
    ("extensions/v1beta1", "Deployment"): "1.16", ("extensions/v1beta1", "DaemonSet"): "1.16",
    ("apps/v1beta1", "Deployment"): "1.16", ("apps/v1beta1", "StatefulSet"): "1.16",
    ("apps/v1beta2", "Deployment"): "1.16", ("apps/v1beta2", "StatefulSet"): "1.16",
    ("apps/v1beta2", "DaemonSet"): "1.16", ("batch/v1beta1", "CronJob"): "1.25", ("batch/v2alpha1", "CronJob"): "1.21",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a type."""

    kind: str  # text | whole | number | flag | map | free; with an s a list of these, with `by name` a map
    inner: str  # the type of a map

    @property
    def is_list(self) -> bool:
        return self.kind.endswith("s")


@cache
def types() -> Mapping[str, Mapping[str, Key]]:
    """Type -> its keys. A type that is not here takes any key."""
    found: dict[str, dict[str, Key]] = {}
    for row in read_table(TABLE).records():
        found.setdefault(row["type"], {})[row["key"]] = Key(row["kind"], row["inner"])
    return found
