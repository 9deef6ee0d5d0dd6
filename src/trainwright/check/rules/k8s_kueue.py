"""K8S: Kueue's queues and their flavors."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.readers.values import int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

GPU = "nvidia.com/gpu"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def text_of(node: Node | None, key: str) -> str:
    child = node.get(key) if node is not None else None
    return child.text if child is not None and child.is_scalar else ""


def gpus_of(pod: Node | None, first: bool = False) -> int | None:
    """GPUs that the containers of a pod template request together, or the first one alone."""
    listed = pod.get("containers") if pod is not None else None
    containers = list(listed.elements()) if listed is not None else []
    amounts = [
        int_at(one, "resources", "limits", GPU) or int_at(one, "resources", "requests", GPU)
        for one in (containers[:1] if first else containers)
    ]
    stated = [amount for amount in amounts if amount is not None]
    return sum(amount.value for amount in stated) if stated and all(amount.known for amount in stated) else None


def covered_resources(root: Node) -> Iterator[Problem]:
    """The flavors of a ClusterQueue, whose resources Kueue compares one by one with those that the group covers."""
    groups = root.get("spec", "resourceGroups")
    for group in groups.elements() if groups is not None else ():
        covered = texts_at(group, "coveredResources")
        flavors = group.get("flavors")
        for flavor in flavors.elements() if flavors is not None and covered else ():
            resources = flavor.get("resources")
            names = [text_at(one, "name") for one in (resources.elements() if resources is not None else ())]
            listed = [name for name in names if name is not None]
            whole = group.get("coveredResources").is_list and resources is not None and resources.is_list  # type: ignore[union-attr]
            certain = whole and all(name.known for name in (*listed, *covered)) and len(listed) == len(names)
            if certain and [one.value for one in listed] != [one.value for one in covered]:
                yield problem(
                    resources or flavor,
                    f"the resources of flavor {text_of(flavor, 'name')} must be {', '.join(c.value for c in covered)}, "
                    "in that order: Kueue rejects the queue",
                    "list the same resources as coveredResources",
                    why="without the ClusterQueue, jobs of its local queues stay suspended.",
                )


def _of_kind(file: File, kind: str) -> list[Node]:
    return [root for root in file.nodes if text_of(root, "kind") == kind]


def misspelt_flavors(file: File) -> Iterator[Problem]:
    """A flavor that is one letter from one that the file defines."""
    defined = [text_of(root.get("metadata"), "name") for root in _of_kind(file, "ResourceFlavor")]
    for queue in _of_kind(file, "ClusterQueue"):
        groups = queue.get("spec", "resourceGroups")
        for group in groups.elements() if groups is not None else ():
            flavors = group.get("flavors")
            for flavor in flavors.elements() if flavors is not None else ():
                name = text_at(flavor, "name")
                hint = did_you_mean(name.value, defined) if name is not None and name.known else ""
                if name is not None and name.value not in defined and hint:
                    yield problem(name, f"no ResourceFlavor {name.value!r} in this file", hint, level="info")
