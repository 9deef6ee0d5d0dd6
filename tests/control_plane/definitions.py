"""The custom resource definitions of the kinds that we write, from the schemas of tests/judges; paths of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api_server import ControlPlane

SCHEMAS = Path(__file__).parents[1] / "judges/schemas"
CLUSTER_WIDE = {
    "ClusterQueue", "ResourceFlavor", "Topology", "NodePool", "EC2NodeClass", "PersistentVolume", "Namespace",
    "ClusterRole", "ClusterRoleBinding", "StorageClass", "CustomResourceDefinition",
}  # fmt: skip
NEWER = ("x-kubernetes-validations",)  # rules in CEL, which an API server of 1.20 does not know
REFUSED = "unknownFieldOfATest"


def definition(path: Path) -> dict[str, Any]:
    group, version, kind = path.stem.split("_")
    plural = plural_of(kind)
    schema = {**_older(json.loads(path.read_text())), "description": kind}
    one = {
        "name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Kueue protects its groups of kinds by this word; anything may stand behind it.
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group, "scope": "Cluster" if kind in CLUSTER_WIDE else "Namespaced", "versions": [one],
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        },
    }  # fmt: skip


def _older(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_older(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # 1.20 reads an empty text as a default as null, and refuses it; what is left out gets another text then.
    kept = {key: "-" if (key, value) == ("default", "") else value for key, value in schema.items()}
    return {key: _older(value) for key, value in kept.items() if key not in NEWER}


def plural_of(kind: str) -> str:
    word = kind.lower()
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("class") else f"{word}s"


def install(plane: ControlPlane, only: tuple[str, ...] = ()) -> list[str]:
    """Every definition, or those of some kinds, and the wait until its kind is served; the kinds."""
    kinds = []
    for path in sorted(SCHEMAS.glob("*_*_*.json")):
        if path.stem.startswith("eksctl") or (only and path.stem.rpartition("_")[2] not in only):
            continue  # a file of eksctl's own, no object of a cluster
        status, answer = apply(plane, definition(path))
        assert status in (200, 201), (path.name, str(answer)[:1000])
        kinds.append(path.stem)
    for stem in kinds:
        group, version, kind = stem.split("_")
        _served(plane, f"/apis/{group}/{version}/{plural_of(kind)}")
    return kinds


def _served(plane: ControlPlane, path: str) -> None:
    import time

    for _ in range(200):
        if plane.request("GET", path)[0] == 200:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} is not served")


def path_of(item: dict[str, Any]) -> str:
    version, kind, meta = item["apiVersion"], item["kind"], item["metadata"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    inside = "" if kind in CLUSTER_WIDE else f"/namespaces/{meta.get('namespace', 'default')}"
    return f"{root}{inside}/{plural_of(kind)}/{meta['name']}"


def apply(plane: ControlPlane, item: dict[str, Any], dry: bool = False) -> tuple[int, Any]:
    """Server-side apply: a field that the schema does not have is refused."""
    words = "?fieldManager=trainwright&force=true" + ("&dryRun=All" if dry else "")
    return plane.request("PATCH", path_of(item) + words, json.dumps(item), "application/apply-patch+yaml")
