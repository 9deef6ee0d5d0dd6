"""K8S: the pods that an object makes, as groups of one template, with how many of them run at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check.readers.kubernetes_pods import maps_at
from trainwright.check.readers.values import int_at, text_at
from trainwright.spec.source import Node

_BY_ROLE = ("pytorchReplicaSpecs", "mpiReplicaSpecs", "tfReplicaSpecs")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one template."""

    kind: str
    role: str
    count: int | None  # at once; None where the file does not say
    template: Node

    @property
    def spec(self) -> Node:
        return self.template.value["spec"]  # type: ignore[no-any-return]


def name_of(root: Node) -> str:
    """The name of an object, where the file says it."""
    name = text_at(root, "metadata", "name")
    return name.value if name is not None and name.known else ""


def kind_of(root: Node) -> str:
    kind = text_at(root, "kind")
    return kind.value if kind is not None else ""


def namespace_of(root: Node) -> str:
    """The namespace that an object states; empty where the caller chooses it."""
    name = text_at(root, "metadata", "namespace")
    return name.value if name is not None and name.known else ""


def may_share_a_namespace(one: Node, other: Node) -> bool:
    """Whether two objects may be in one namespace."""
    first, second = (text_at(root, "metadata", "namespace") for root in (one, other))
    if first is None or second is None or not first.known or not second.known:
        return True
    return first.value == second.value


def pod_groups(root: Node) -> list[PodGroup]:
    """The groups of an object whose pods have containers."""
    groups = [PodGroup(kind_of(root), *one) for one in _templates(root, root.get("spec"))]
    return [group for group in groups if group.template.get("spec", "containers") is not None]


def _templates(root: Node, spec: Node | None) -> Iterator[tuple[str, int | None, Node]]:
    kind = kind_of(root)
    if spec is None or not spec.is_map:
        return
    if kind == "Pod":
        yield "", 1, root
    for role, replica in (
        (role, one) for key in _BY_ROLE for role, one in (spec.get(key) or Node({}, spec.span)).items()
    ):
        yield from _one(role, _number(replica, "replicas", 1), replica)
    for replica in maps_at(spec, "replicaSpecs"):
        name = text_at(replica, "name")
        yield from _one(name.value if name is not None else "", _number(replica, "replicas", 1), replica)
    for job in maps_at(spec, "replicatedJobs"):
        name, inner = text_at(job, "name"), job.get("template", "spec")
        if inner is not None and inner.is_map:
            count = _product(_number(job, "replicas", 1), _at_once(inner))
            yield from _one(name.value if name is not None else "", count, inner)
    if kind in ("RayJob", "RayCluster", "RayService"):
        yield from _of_ray(spec.get("rayClusterSpec") or spec)
    elif kind == "Job":
        yield from _one("", _at_once(spec), spec)
    elif kind in ("StatefulSet", "Deployment"):
        yield from _one("", _number(spec, "replicas", 1), spec)


def _of_ray(cluster: Node) -> Iterator[tuple[str, int | None, Node]]:
    head = cluster.get("headGroupSpec")
    if head is not None:
        yield from _one("head", 1, head)
    for group in maps_at(cluster, "workerGroupSpecs"):
        least = _number(group, "minReplicas", 0)
        count = _product(_number(group, "replicas", least), _number(group, "numOfHosts", 1))
        yield from _one("worker", count, group)


def _one(role: str, count: int | None, holder: Node) -> Iterator[tuple[str, int | None, Node]]:
    template = holder.get("template")
    if template is not None and template.is_map:
        yield role, count, template


def _at_once(spec: Node) -> int | None:
    """Pods of a Job that run together: not more than are to complete."""
    together, total = _number(spec, "parallelism", 1), _number(spec, "completions", None)
    if together is None or spec.get("completions") is None:
        return together
    return min(together, total) if total is not None else None


def _number(node: Node, key: str, default: int | None) -> int | None:
    value = int_at(node, key)
    return default if value is None else value.value if value.known else None


def _product(one: int | None, other: int | None) -> int | None:
    return one * other if one is not None and other is not None else None
