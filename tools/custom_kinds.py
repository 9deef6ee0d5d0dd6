"""Print the keys of custom kinds (Ray, Kubeflow, JobSet, Kueue, Karpenter) as the table that `check` reads, from a
folder of their schemas named `GROUP_VERSION_KIND.json`, as CustomResourceDefinitions hold them:
`python tools/custom_kinds.py ../shared/facts/schemas > src/trainwright/check/data/custom_kinds.csv`; with `--judge` the
schemas for `tests/check/files/custom_kinds.json`, without what no test asks for.

Parts that are Kubernetes' own types (a pod's spec, a label selector) are named and not copied."""

from __future__ import annotations

import json
import sys
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

from trainwright.check.kubernetes_schema import types

Schema = dict[str, Any]
# Kinds whose parts others contain come first, and the parts are named after them.
KINDS = (
    "RayCluster", "RayJob", "JobSet", "ClusterTrainingRuntime", "TrainJob", "PyTorchJob", "MPIJob",
    "ClusterQueue", "LocalQueue", "ResourceFlavor", "Topology", "NodePool", "EC2NodeClass",
)  # fmt: skip
SCALARS = {"string": "text", "integer": "whole", "boolean": "flag", "number": "number"}
# What other releases of the same apiVersion take: kubeflow-trainer-api 2.0 and 2.1, kubeflow-training 1.3, the
# PyTorch operator and the MPI operator before `runPolicy`, KubeRay 1.0.
OTHER_RELEASES = {
    **{("TrainJob:spec", key): "frees" for key in ("podSpecOverrides", "podTemplateOverrides")},
    **{("TrainJob:spec", key): "text by name" for key in ("labels", "annotations")},
    ("TrainJob:spec.trainer", "numProcPerNode"): "free",
    ("ClusterTrainingRuntime:spec.mlPolicy.torch", "numProcPerNode"): "free",
    ("ClusterTrainingRuntime:spec.mlPolicy.torch", "elasticPolicy"): "free",
    **{(f"{kind}:spec", "cleanPodPolicy"): "text" for kind in ("PyTorchJob", "MPIJob")},
    **{
        (f"{kind}:spec", key): "whole"
        for kind in ("PyTorchJob", "MPIJob")
        for key in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    },
    **{(f"{kind}:spec", "schedulingPolicy"): "free" for kind in ("PyTorchJob", "MPIJob")},
    ("PyTorchJob:spec.runPolicy", "managedBy"): "text",  # an MPIJob has the same run policy
    ("RayJob:spec", "runtimeEnv"): "text",
    ("RayJob:spec", "deletionPolicy"): "text",
    ("RayCluster:spec.headGroupSpec", "replicas"): "whole",
}  # fmt: skip
# Kubernetes' own types that the schemas repeat, and parts that nobody writes by hand, which would double the table.
OWN = (
    "PodTemplateSpec", "PodSpec", "JobTemplateSpec", "JobSpec", "LabelSelector", "EnvVar", "EnvFromSource",
    "ResourceRequirements", "SecurityContext", "VolumeMount", "Toleration", "Service", "ServiceSpec",
    "PersistentVolumeClaim", "PersistentVolumeClaimSpec",
)  # fmt: skip
LEFT_OUT = (
    "status", "metrics", "networkPolicy", "runtimePatches", "historyServerOptions", "redisPassword", "redisUsername",
    "concurrentAdmissionPolicy",
)  # fmt: skip
JUDGED = (
    "type", "items", "additionalProperties", "required", "enum", "pattern", "anyOf", "minimum", "maximum", "minItems",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip
Rows = dict[str, tuple[str, str]]


def merged(one: Schema, other: Schema) -> Schema:
    """The schema of two versions together; a value whose type has changed is free."""
    if one.get("type") != other.get("type"):
        return {}
    result = dict(other)
    old, new = one.get("properties", {}), other.get("properties", {})
    if old or new:
        both = {key: merged(old[key], new[key]) for key in old.keys() & new.keys()}
        result["properties"] = {**old, **new, **both}
    for part in ("items", "additionalProperties"):
        if isinstance(one.get(part), dict) and isinstance(other.get(part), dict):
            result[part] = merged(one[part], other[part])
    return result


def shape(schema: Schema) -> tuple[str, Schema | None]:
    """How the table names the type of a value, and the schema of the map inside of it."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields") or kind is None:
        return "free", None
    if kind == "array":
        inner, below = shape(schema["items"])
        return f"{inner}s", below
    if kind != "object":
        return SCALARS.get(kind, "free"), None
    if schema.get("properties"):
        return "map", schema
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        return "free", None
    inner, below = shape(values)
    return f"{inner} by name", below


class Table:
    """The rows of all kinds, a type once."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {}

    def type_of(self, schema: Schema, name: str) -> str:
        """The type of a map: Kubernetes' own, one that the table has already, or a new one of this name."""
        own = kubernetes_type(schema, name)
        if own:
            return own
        rows: Rows = {}
        for key, value in sorted(schema["properties"].items()):
            path = f"{name}{'' if name.endswith(':') else '.'}{key}"
            kind, below = shape(value) if key not in LEFT_OUT else ("free", None)
            if path.endswith(":metadata"):
                rows[key] = ("map", "ObjectMeta")
            else:
                rows[key] = (kind, self.type_of(below, path) if below is not None else "")
        same = next((other for other, known in self.rows.items() if known == rows and alike(other, name, rows)), name)
        self.rows[same] = rows
        return same


def alike(one: str, other: str, rows: Rows) -> bool:
    """Whether two types of the same keys are one: a single key such as `name` says little."""
    return len(rows) > 1 or last(one) == last(other)


def last(name: str) -> str:
    return name.replace(":", ".").rsplit(".", 1)[-1]


def kubernetes_type(schema: Schema, name: str) -> str:
    """The type of Kubernetes that a map is, or none: most of its keys with the same kinds of values, and no others."""
    keys = schema["properties"]
    if last(name) == "metadata" and keys.keys() <= types()["ObjectMeta"].keys():
        return "ObjectMeta"
    spec = kubernetes_type(keys["spec"], "spec") if keys.get("spec", {}).get("properties") else ""
    for type_ in OWN:
        known = types()[type_]
        if not keys.keys() <= known.keys() or len(keys) < 0.6 * len(known) or ("spec" in keys and not spec):
            continue
        kinds = {key: (known[key].kind, shape(value)[0]) for key, value in keys.items()}
        same = all(one == other or "free" in one + other for one, other in kinds.values())
        if same and ("spec" not in keys or known["spec"].inner == spec):
            return type_
    return ""


def short(schema: Any) -> Any:
    """A schema without texts, and without the pods, which Kubernetes' own schemas judge."""
    if not isinstance(schema, dict):
        return [short(one) for one in schema] if isinstance(schema, list) else schema
    keys = schema.get("properties", {})
    if "containers" in keys:
        return {"$comment": "PodSpec"}
    result = {name: short(value) for name, value in schema.items() if name in JUDGED}
    left_out = {"x-kubernetes-preserve-unknown-fields": True}
    parts = {key: left_out if key in LEFT_OUT else short(value) for key, value in keys.items()}
    return {**result, "properties": parts} if parts else result


def main() -> None:
    folder = Path(sys.argv[1])
    paths = sorted(path for path in folder.glob("*.json") if path.stem.rsplit("_", 1)[1] in KINDS)
    schemas = {path.stem: json.loads(path.read_text()) for path in paths}
    if "--judge" in sys.argv:
        rows = (f"{json.dumps(name)}: {json.dumps(short(one), sort_keys=True)}" for name, one in schemas.items())
        print("{\n" + ",\n".join(rows) + "\n}")
        return
    table = Table()
    for kind in KINDS:
        versions = [one for name, one in schemas.items() if name.endswith(f"_{kind}")]
        table.type_of(reduce(merged, versions), f"{kind}:")
    for (type_, key), kind in OTHER_RELEASES.items():
        table.rows[type_][key] = (kind, "")
    print("# source: schemas of the CustomResourceDefinitions of KubeRay, Kubeflow, JobSet, Kueue and Karpenter")
    print(f"# date: {date.today()}")
    print("type,key,kind,inner")
    for type_, keys in sorted(table.rows.items()):
        for key, (kind, inner) in sorted(keys.items()):
            print(f"{type_},{key},{kind},{inner}")


if __name__ == "__main__":
    main()
