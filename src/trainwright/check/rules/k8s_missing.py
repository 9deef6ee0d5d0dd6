"""K8S: objects without an apiVersion, and keys of forks of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from trainwright.check.kubernetes_schema import OBJECTS, types
from trainwright.check.model import File
from trainwright.check.readers.kubernetes import lacks_version
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_PART = re.compile(r"templ|tmpl|tpl|patch|overlay|fragment|snippet|values", re.IGNORECASE)
_SHARED = 8  # letters with which two keys of one cause begin
# Of NVIDIA's Kubernetes of 2018, which named the GPUs of a pod beside its containers.
_OF_FORK = {
    "extendedResourceRequests": "remove it, and request the GPUs in the container: resources.limits with nvidia.com/gpu"
}


def no_version(file: File, root: Node) -> Iterator[Problem]:
    """An object that says what it is, but not of which API."""
    kind = text_at(root, "kind")
    if kind is None or not lacks_version(root) or _PART.search(PurePath(file.path).name):
        return
    right = next(version for version, name in OBJECTS if name == kind.value)
    yield problem(
        kind,
        f"a {kind.value} without apiVersion: kubectl refuses it",
        f"add apiVersion: {right}",
        why="kubectl ends with `error validating data: apiVersion not set`, and sends nothing.",
    )


def fix_of_fork(name: str) -> str:
    """What replaces a key that only a fork of Kubernetes has."""
    return _OF_FORK.get(name, "")


def repeats_a_container(node: Node, name: str, type_: str) -> bool:
    """Whether an unknown key of a pod and one of its containers begin alike: one cause, reported at the container."""
    listed = node.get("containers") if type_ == "PodSpec" else None
    containers = [one for one in listed.elements() if one.is_map] if listed is not None else []
    unknown = (key for one in containers for key, _ in one.items() if key not in types()["Container"])
    return any(len(name) >= _SHARED and key[:_SHARED] == name[:_SHARED] for key in unknown)
