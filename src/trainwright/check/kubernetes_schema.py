"""The keys of Kubernetes' own objects and the types of their values, as a table of all versions together; and of custom
kinds, as a table of one or two versions each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table

TABLE = Path(__file__).parent / "data" / "kubernetes_keys.csv"
CUSTOM_TABLE = TABLE.with_name("custom_kinds.csv")
VERSIONS = "1.25 to 1.37"
# Objects whose keys the table holds, by apiVersion and kind.
OBJECTS = {
    **{("v1", kind): kind for kind in ("Pod", "PodTemplate", "Service", "PersistentVolumeClaim", "PersistentVolume")},
    **{("v1", kind): kind for kind in ("ConfigMap", "Secret")},
    **{("batch/v1", kind): kind for kind in ("Job", "CronJob")},
    **{("apps/v1", kind): kind for kind in ("Deployment", "StatefulSet", "DaemonSet")},
}
# Custom kinds and their types. A custom type has a colon in its name: the kind, and the path of keys below it.
CUSTOM = {
    **{("ray.io/v1", kind): f"{kind}:" for kind in ("RayCluster", "RayJob")},
    ("kubeflow.org/v1", "PyTorchJob"): "PyTorchJob:",
    ("kubeflow.org/v2beta1", "MPIJob"): "MPIJob:",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "JobSet:",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "TrainJob:",
    **{
        ("trainer.kubeflow.org/v1alpha1", kind): "ClusterTrainingRuntime:"
        for kind in ("ClusterTrainingRuntime", "TrainingRuntime")
    },
    **{
        (f"kueue.x-k8s.io/{version}", kind): f"{kind}:"
        for version in ("v1beta1", "v1beta2")
        for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Topology")
    },
    ("karpenter.sh/v1", "NodePool"): "NodePool:",
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): "EC2NodeClass:",
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
    """Kubernetes' own types -> their keys. A type that is not here takes any key."""
    return _read(TABLE)


@cache
def custom_types() -> Mapping[str, Mapping[str, Key]]:
    """The types of custom kinds -> the keys that their schema knows; other versions may know more."""
    return _read(CUSTOM_TABLE)


def keys_of(type_: str) -> Mapping[str, Key] | None:
    return (custom_types() if is_custom(type_) else types()).get(type_)


def is_custom(type_: str) -> bool:
    return ":" in type_


def _read(path: Path) -> Mapping[str, Mapping[str, Key]]:
    found: dict[str, dict[str, Key]] = {}
    for row in read_table(path).records():
        found.setdefault(row["type"], {})[row["key"]] = Key(row["kind"], row["inner"])
    return found
