"""K8S006 on manifests that kubernetes-validate, which holds Kubernetes' own schemas, accepts or refuses."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import ValidationError
from reported import shown

from trainwright.catalog.tables import read_table
from trainwright.check.config import Config
from trainwright.check.engine import RulePlan, Selection, check_text
from trainwright.check.kubernetes_schema import TABLE, VERSIONS

POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "hostNetwork": True,
    "terminationGracePeriodSeconds": 120,
    "nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30}],
    "containers": [
        {
            "name": "train",
            "image": "nvcr.io/nvidia/pytorch:25.03-py3",
            "command": ["torchrun", "--nproc_per_node=8"],
            "args": ["train.py", "--epochs", "10"],
            "env": [
                {"name": "NCCL_DEBUG", "value": "1"},
                {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "ports": [{"containerPort": 29500, "name": "rdzv"}],
            "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Ti"}, "requests": {"cpu": 96}},
            "securityContext": {"privileged": False, "capabilities": {"add": ["IPC_LOCK"]}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "readOnly": False}],
        }
    ],
    "volumes": [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "fsx"}},
    ],
}
TEMPLATE = {"metadata": {"labels": {"app": "train"}, "annotations": {"attempt": "2"}}, "spec": POD}
OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu"}, "spec": POD},
    {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gpu", "labels": {"a": "b"}},
        "spec": {"completions": 4, "completionMode": "Indexed", "backoffLimit": 0, "template": TEMPLATE},
    },
    {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "gpu"},
        "spec": {
            "replicas": 2, "serviceName": "gpu", "selector": {"matchLabels": {"app": "train"}},
            "template": {**TEMPLATE, "spec": {**POD, "restartPolicy": "Always"}},
        },
    },
]  # fmt: skip


def accepted(value: dict[str, Any]) -> bool:
    try:
        kubernetes_validate.validate(value, "1.35", strict=True)
    except ValidationError:
        return False
    return True


PLAN = RulePlan.of(Selection(select=("K8S006",)), {}, Config())


def reported(text: str) -> list[str]:
    return shown(check_text("job.yaml", lambda: text, True, PLAN).findings)


def findings(value: Any) -> list[str]:
    return reported(yaml.safe_dump(value, sort_keys=False))


def about_types(value: Any) -> list[str]:
    """What is said about keys and types, which is all that a schema knows."""
    text = yaml.safe_dump(value, sort_keys=False)
    all_ = check_text("job.yaml", lambda: text, True, PLAN).findings
    return shown([finding for finding in all_ if re.search("has no key|must be", finding.message)])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths below an object, without those that make it another object."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        if (*path, key) not in (("apiVersion",), ("kind",)):
            yield (*path, key)
            yield from places(child, (*path, key))


def changed(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One key misspelt, one value of another type, or one key moved elsewhere."""
    result = copy.deepcopy(value)
    paths = list(places(result))
    path = rng.choice(paths)
    parent = result
    for step in path[:-1]:
        parent = parent[step]
    key, child = path[-1], parent[path[-1]]
    kind = rng.choice(["key", "type", "type", "place"])
    if kind == "key" and isinstance(key, str):
        parent[rng.choice([key + "s", key.lower() + "_", key[:-1] or "x"])] = parent.pop(key)
    elif kind == "place":
        maps = [result, *(find(result, p) for p in paths if isinstance(find(result, p), dict))]
        rng.choice(maps)[rng.choice(["volumes", "command", "limits", "name", "labels"])] = copy.deepcopy(child)
    else:
        parent[key] = rng.choice([7, True, "text", ["text"], {"key": "text"}, 2.5])
    return result


def find(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("value", OBJECTS, ids=lambda one: one["kind"])
def test_it_agrees_with_kubernetes_schemas(value: dict[str, Any]) -> None:
    assert accepted(value)
    assert findings(value) == []
    rng, refused = random.Random(4), 0
    for _ in range(150):
        other = changed(value, rng)
        ours = about_types(other)
        if ours:
            refused += 1
            assert not accepted(other), (ours, other)
        elif not accepted(other):
            assert left_to_others(other)
    assert refused > 75


def left_to_others(other: dict[str, Any]) -> bool:
    """Whether the schema refuses what this rule leaves alone: keys that are missing, amounts, fractions."""
    with pytest.raises(ValidationError) as error:
        kubernetes_validate.validate(other, "1.35", strict=True)
    said = error.value.message
    assert re.search("required|2.5 is not of type|not valid under any", said), said
    return True


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("labels: {attempt: 2}", 1),
        ("annotations: {since: 2026-11-16, at: 12:30, none: ~}", 0),  # texts to Kubernetes' reader of YAML
        ("labels: {answer: yes}", 1),  # a truth value to it: an API server of 1.20 refuses it
        ("labels: {attempt: ${N}}", 0),
        ("$patch: replace", 0),
    ],
)
def test_what_kubernetes_reads_as_text(line: str, said: int) -> None:
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  {line}\nspec: {{containers: [{{name: gpu, image: a}}]}}\n"
    )
    assert len(reported(text)) == said


def test_pods_of_other_kinds_are_read_and_their_own_keys_are_not() -> None:
    replica = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {**POD, "workdir": "/code"}}}
    job = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"},
        "spec": {"pytorchReplicaSpecs": {"Worker": replica}, "whatever": 3},
    }  # fmt: skip
    assert len(findings(job)) == 1


@pytest.mark.parametrize(
    ("version", "kind", "lines"),
    [
        ("v1", "Job", [1]),
        ("batch/v1", "Deployment", [1]),
        ("batch/v1", "job", [2]),
        ("batch/v1", "Jobs", [2]),
        ("batch/v1beta1", "CronJob", [1]),
        ("extensions/v1beta1", "Deployment", [1]),
        ("batch/v1", "Job", []),
        ("batch.volcano.sh/v1alpha1", "Job", []),
        ("serving.knative.dev/v1", "Service", []),
        ("v1", "Node", []),
        ("v1", "${KIND}", []),
    ],
)
def test_kind_and_version_belong_together(version: str, kind: str, lines: list[int]) -> None:
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: gpu}}\n"
    assert reported(text) == [f"error K8S006 {line}" for line in lines]


def test_a_template_is_asked_for_near_misses_only() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: gpu}\nspec:\n  containers:\n    - name: {{ .Values.name }}\n"
        "      image: a\n      volumeMount: []\n      {{- toYaml .Values.more | nindent 6 }}\n      gadgets: 3\n"
    )
    assert reported(text) == ["error K8S006 8"]


@pytest.mark.parametrize(
    ("request_", "limit", "refused"),
    [("2Ti", "1Ti", True), ("1024Gi", "1Ti", False), ("1500m", "1", True), ("1", "1000m", False), ("1e3", "5", False)],
)
def test_amounts(request_: str, limit: str, refused: bool) -> None:
    name = "memory" if "i" in limit else "cpu"
    pod = copy.deepcopy(POD)
    pod["containers"][0]["resources"] = {"requests": {name: request_}, "limits": {name: limit}}
    errors = findings({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu"}, "spec": pod})
    assert bool(errors) == refused


def test_the_versions_in_messages_are_those_of_the_table() -> None:
    assert f"Kubernetes {VERSIONS}," in read_table(TABLE).notes["source"]


def test_our_own_manifests_have_none() -> None:
    """Golden manifests of the schedulers and of the platforms."""
    folder, seen = Path(__file__).parents[1], 0
    for path in sorted(folder.glob("**/golden/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "kind:" in text:
            seen += 1
            assert reported(text) == [], path
    assert seen > 10
