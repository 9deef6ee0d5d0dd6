"""K8S: the runtime that a TrainJob of Kubeflow names, against those of its file and directory."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import kind_of, name_of
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.spec.source import Node

_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")  # the first one is the default


def runtime_of_other_kind(file: File, job: Node) -> Iterator[Problem]:
    """A runtime that is there by its name, and of the other kind than the reference says."""
    name, kind = (text_at(job, "spec", "runtimeRef", key) for key in ("name", "kind"))
    meant = kind.value if kind is not None else _KINDS[0]
    if name is None or not name.known or meant not in _KINDS or file.template:
        return
    files = [file, *manifests_beside(file, "TrainingRuntime")]
    kinds = {kind_of(root) for one in files for root in one.nodes if name_of(root) == name.value} & set(_KINDS)
    if kinds and meant not in kinds:
        (other,) = kinds
        said = f"{name.value} here is a {other}, and runtimeRef " + (
            "says" if kind is not None else "without kind means"
        )
        yield problem(
            kind or name,
            f"{said} a {meant}",
            f"write kind: {other}",
            level="warning",
            why="Kubeflow refuses a TrainJob whose runtime does not exist, or takes another one of that name.",
        )
