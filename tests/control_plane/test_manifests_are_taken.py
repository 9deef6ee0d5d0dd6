"""Every manifest that we write, handed to a real API server by server-side apply: it takes it and keeps every field."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ControlPlane
from definitions import apply

from deployed_text import as_deployed
from trainwright.platforms.plan.tree import make_plan
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.kinds import KINDS
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.spec.load import load

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "tests/golden/jobs").glob("*eks/*.yaml"))  # what `submit` writes: test_golden_jobs.py
PLANS = sorted((ROOT / "examples").glob("eks-*.yaml"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may build the server


def lost(sent: Any, kept: Any, path: str = "") -> list[str]:
    """Paths that were sent and that the API does not have: fields that no schema knows are dropped there in silence."""
    if isinstance(sent, dict):
        if not isinstance(kept, dict):
            return [path]
        stated = {key: value for key, value in sent.items() if value not in ({}, [], None, "")}
        inside = [where for key in stated.keys() & kept.keys() for where in lost(sent[key], kept[key], f"{path}.{key}")]
        return [*(f"{path}.{key}" for key in stated.keys() - kept.keys()), *inside]
    if isinstance(sent, list):
        if not isinstance(kept, list) or len(sent) != len(kept):
            return [path]
        return [where for n, (a, b) in enumerate(zip(sent, kept, strict=True)) for where in lost(a, b, f"{path}[{n}]")]
    return []


def problems(plane: ControlPlane, item: dict[str, Any]) -> list[str]:
    status, answer = apply(plane, item, dry=True)
    where = f"{item['kind']} {item['metadata']['name']}"
    if status >= 300:
        return [f"{where}: {answer['message'][:500]}"]
    return [f"{where}: nobody knows {path}" for path in lost(item, answer)]


def mutants(item: Any) -> list[Any]:
    """The manifest with one unknown key in each of its mappings that is a structure, one at a time."""
    changed = []
    for path in _structures(item):
        copied = copy.deepcopy(item)
        inner = copied
        for key in path:
            inner = inner[key]
        inner["noSuchField"] = "x"
        changed.append(copied)
    return changed


def _structures(item: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    free = ("labels", "annotations", "nodeSelector", "requests", "limits", "matchLabels", "data", "binaryData",
            "nodeLabels", "stringData", "rayStartParams", "volumeAttributes", "storage", "metadata", "tags", "capacity",
            "claimRef")  # fmt: skip
    if isinstance(item, list):
        return [found for n, each in enumerate(item[:1]) for found in _structures(each, (*path, n))]
    if not isinstance(item, dict) or (path and path[-1] in free):
        return []
    own = [path] if path else []
    return own + [found for key, value in item.items() for found in _structures(value, (*path, key))]


def documents(text: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(text) if item]


@pytest.fixture(scope="module", autouse=True)
def namespaces(plane: ControlPlane) -> None:
    """Those that our jobs go to; HyperPod resumes only what is in `kubeflow`."""
    for name in ("training", "kubeflow"):
        apply(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def test_every_kind_of_job_is_taken(plane: ControlPlane) -> None:
    items = [item for path in JOBS for item in documents(path.read_text())]
    assert {item["kind"] for item in items} == {"PyTorchJob", "JobSet", "TrainJob", "MPIJob", "RayJob"}
    assert [problem for item in items for problem in problems(plane, item)] == []


@pytest.mark.parametrize("store", ["", "s3://bucket/code"])
def test_every_kind_of_job_with_code_of_its_own_is_taken(plane: ControlPlane, store: str) -> None:
    code = {"code": "/trainwright/code", "code_store": store}
    launch = Launch("own", ("python3", "train.py"), Path("/fsx/run"), nodes=2, container="i", **code)
    settings = PodSettings(namespace="training", claims={"/fsx": "fsx"}, shared=("/fsx",))
    items = [item for kind in KINDS for item in documents(KubernetesScheduler(settings, kind).render(launch).text)]
    assert len(items) == len(KINDS)
    assert [problem for item in items for problem in problems(plane, item)] == []


def test_the_objects_of_every_plan_are_taken(plane: ControlPlane) -> None:
    plans = [make_plan(load(path)) for path in PLANS]
    items = [
        item for plan in plans for name, text in plan.files.items() if name.startswith(("kubernetes/", "jobs/"))
        for item in documents(as_deployed(text))
    ]  # fmt: skip
    own = {
        "ClusterQueue",
        "LocalQueue",
        "ResourceFlavor",
        "PersistentVolumeClaim",
        "NodePool",
        "EC2NodeClass",
        "DaemonSet",
    }
    assert {item["kind"] for item in items} > own
    assert [problem for item in items for problem in problems(plane, item)] == []


def test_the_judge_sees_an_unknown_field_anywhere(plane: ControlPlane) -> None:
    """One unknown key in each structure of each kind: the API refuses it or drops it, and both are seen."""
    texts = [path.read_text() for path in JOBS if "debug" in path.name]
    folders = [ROOT / f"tests/golden/{name}/kubernetes" for name in ("eks-g5", "eks-trn1")]
    texts += [as_deployed(path.read_text()) for folder in folders for path in sorted(folder.glob("*.yaml"))]
    unseen = [
        f"{item['kind']}: {mutant}" for text in texts for item in documents(text) for mutant in mutants(item)
        if not problems(plane, mutant)
    ]  # fmt: skip
    assert unseen == []
