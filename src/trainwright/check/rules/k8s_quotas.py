"""K8S: whether a job fits the quota of the Kueue queue that it names, in its file or the directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.check.kustomize import is_kustomized
from trainwright.check.model import File, Value
from trainwright.check.readers.kubernetes_pods import container_of, maps_at, quantity
from trainwright.check.readers.values import map_values, text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import kind_of, name_of, namespace_of, pod_groups
from trainwright.check.rules.k8s_kueue import QUEUE_LABEL
from trainwright.check.rules.k8s_pool_requirements import are_a_series
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.errors import nearest
from trainwright.spec.source import Node

_SHRINKS = "kueue.x-k8s.io/job-min-parallelism"  # the queue may admit fewer pods of the job
_ALIKE = 0.8
_WORDS = {
    "nvidia.com/gpu": "GPUs", "vpc.amazonaws.com/efa": "EFA cards", "aws.amazon.com/neuron": "Neuron devices",
    "cpu": "CPUs", "memory": "GiB of memory",
}  # fmt: skip
_UNITS = {"memory": 2**30, "ephemeral-storage": 2**30}
_ACCELERATORS = ("nvidia.com/gpu", "aws.amazon.com/neuron")
_NOT_COVERED = "Kueue admits a job when every resource that it requests has a flavor: this one stays suspended."
_NO_FLAVOR = "Kueue leaves out flavors whose nodeLabels the node selector excludes: the job stays suspended."
_SUSPENDED = "a job whose queue does not exist stays suspended, without a pod and without an error."


def quotas(file: File) -> Iterator[Problem]:
    """A job that asks its queue for more than the queue can ever have, or names none."""
    jobs = [(root, text_at(root, "metadata", "labels", QUEUE_LABEL)) for root in file.nodes]
    named = [(root, name) for root, name in jobs if name is not None and name.known]
    if not named:
        return
    locals_, queues = (_objects(file, kind) for kind in ("LocalQueue", "ClusterQueue"))
    for root, name in named:
        yield from _misspelt(root, name, locals_)
        yield from _of_another_namespace(file, root, name)
        target = _cluster_queue(root, name.value, locals_)
        targets = [queue for queue in queues if name_of(queue) == target] if target else []
        limits = [_limits(queue) for queue in targets]
        if limits and root.get("metadata", "annotations", _SHRINKS) is None:
            yield from _fits(root, name, limits)
        if len(targets) == 1:
            yield from _covered(root, name, targets[0])
            yield from _flavored(file, root, targets[0])


def _objects(file: File, kind: str) -> list[Node]:
    """Those of the file; where it has none, those of the other manifests of its directory."""
    own = [root for root in file.nodes if kind_of(root) == kind]
    return own or [root for other in manifests_beside(file, kind) for root in other.nodes if kind_of(root) == kind]


def _fits(root: Node, name: Value[str], limits: list[dict[str, float | None]]) -> Iterator[Problem]:
    """Where a directory has several queues of one name, all must be too small."""
    for resource, demand in _demand(root).items():
        most = [limit.get(resource) for limit in limits]
        has = max((one for one in most if one is not None), default=0.0)
        if all(one is not None for one in most) and demand > has:
            unit = _UNITS.get(resource, 1)
            yield problem(
                name,
                f"the job needs {demand / unit:g} {_WORDS.get(resource, resource)} at once, and its queue has "
                f"{has / unit:g}: it waits for ever",
                "raise nominalQuota, or make the job smaller",
                why="Kueue admits a job as a whole, and this queue has no cohort to borrow from.",
            )
            return


def _covered(root: Node, name: Value[str], queue: Node) -> Iterator[Problem]:
    """GPUs that no group of the queue covers; Kueue's configuration may leave out other resources."""
    groups = maps_at(queue.get("spec") or queue, "resourceGroups")
    covered = [value for group in groups for value in texts_at(group, "coveredResources")]
    names = [value.value for value in covered]
    missing = [one for one in _ACCELERATORS if _demand(root).get(one) and one not in names]
    if missing and covered and all(value.known for value in covered):
        said = f"the job requests {missing[0]}, which its queue {name_of(queue)} does not cover: it waits for ever"
        fix = f"add {missing[0]} to coveredResources and to the flavors of the ClusterQueue"
        yield problem(name, said, fix, level="warning", why=_NOT_COVERED)


def _flavored(file: File, root: Node, queue: Node) -> Iterator[Problem]:
    """Node selectors of the pods, which no flavor of a group has."""
    nodes = {name_of(one): map_values(one.get("spec", "nodeLabels")) for one in _objects(file, "ResourceFlavor")}
    for group in maps_at(queue.get("spec") or queue, "resourceGroups"):
        names = [text_at(flavor, "name") for flavor in maps_at(group, "flavors")]
        labels = [nodes.get(one.value) if one is not None else None for one in names]
        for key, wanted in _selected(root, {one.value for one in texts_at(group, "coveredResources")}):
            has = [one.get(key) for one in labels if one is not None]
            known = has and len(has) == len(names) and all(one is not None and one.known for one in has)
            if known and wanted.known and wanted.text not in (shown := [one.text for one in has if one is not None]):
                said = f"the pods need {key}: {wanted.text}, and the flavors of their queue have {', '.join(shown)}"
                fix = "write the same value in both, or name another queue"
                yield problem(wanted, said, fix, level="warning", why=_NO_FLAVOR)
                return


def _selected(root: Node, resources: set[str]) -> Iterator[tuple[str, Value[Any]]]:
    """The node selectors of pods that request one of these resources."""
    for group in pod_groups(root):
        containers = [container_of(one) for one in maps_at(group.spec, "containers")]
        if any(resources & {*one.requests, *one.limits} for one in containers):
            yield from map_values(group.spec.get("nodeSelector")).items()


def _cluster_queue(job: Node, name: str, locals_: list[Node]) -> str:
    """The ClusterQueue behind a job's queue: teams give their queues one name, each in its own namespace."""
    place = namespace_of(job)
    local = [queue for queue in locals_ if name_of(queue) == name]
    here = [queue for queue in local if namespace_of(queue) == place] or ([] if place else local)
    targets = {target.value for queue in here if (target := text_at(queue, "spec", "clusterQueue")) is not None}
    return targets.pop() if len(targets) == 1 else ""


def _misspelt(job: Node, name: Value[str], locals_: list[Node]) -> Iterator[Problem]:
    """A queue that is one letter from one of the job's namespace."""
    place = namespace_of(job)
    here = [name_of(queue) for queue in locals_ if not place or namespace_of(queue) in ("", place)]
    similar = [one for one in here if one.count("-") == name.value.count("-") and not are_a_series(one, name.value)]
    near = nearest(name.value, similar, _ALIKE)
    if near and name.value not in here:
        said = f"there is no LocalQueue {name.value!r} here, but {near!r}"
        yield problem(name, said, f"write {near}", level="warning", why=_SUSPENDED)


def _of_another_namespace(file: File, job: Node, name: Value[str]) -> Iterator[Problem]:
    """The queue is there by its name, in another namespace than the job states, beside the ClusterQueue that it is of:
    the directory sets up the queues, and has none for this namespace."""
    place = text_at(job, "metadata", "namespace")
    if place is None or not place.known or file.template or is_kustomized(file.path):
        return
    files = [file, *manifests_beside(file, "LocalQueue")]
    queues = [root for one in files for root in one.nodes if kind_of(root) == "LocalQueue"]
    places = sorted({namespace_of(queue) for queue in queues if name_of(queue) == name.value})
    targets = {target.value for queue in queues if (target := text_at(queue, "spec", "clusterQueue")) is not None}
    complete = bool(targets & {name_of(queue) for queue in _objects(file, "ClusterQueue")})
    if complete and len(places) == 1 and places[0] and places[0] != place.value:
        yield problem(
            place,
            f"the job is in namespace {place.value}, and its LocalQueue {name.value} in {places[0]}",
            f"write namespace: {places[0]}, or add a LocalQueue of this name to {place.value}",
            level="warning",
            why="Kueue looks for the queue in the job's namespace; without it the job stays suspended.",
        )


def _limits(queue: Node) -> dict[str, float | None]:
    """The quota of each resource, of all flavors together; none where the queue may borrow."""
    spec = queue.get("spec")
    if spec is None or spec.get("cohort") is not None or spec.get("cohortName") is not None:
        return {}
    totals: dict[str, float | None] = {}
    for group in maps_at(spec, "resourceGroups"):
        for one in (one for flavor in maps_at(group, "flavors") for one in maps_at(flavor, "resources")):
            name, quota = text_at(one, "name"), quantity(text_at(one, "nominalQuota"))
            if name is not None and name.known:
                before = totals.get(name.value, 0.0)
                totals[name.value] = before + quota if before is not None and quota is not None else None
    return totals


def _demand(root: Node) -> dict[str, float]:
    """What all pods of an object request together, at least: amounts that are not known count as 0."""
    total: dict[str, float] = {}
    for group in pod_groups(root):
        for container in (container_of(one) for one in maps_at(group.spec, "containers")):
            for resource, value in {**container.limits, **container.requests}.items():
                total[resource] = total.get(resource, 0.0) + (quantity(value) or 0) * (group.count or 0)
    return total
