"""K8S: Kueue's queues: their flavors, and whether a job fits the queue that it names."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.readers.values import int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

GPU = "nvidia.com/gpu"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SHRINKS = "kueue.x-k8s.io/job-min-parallelism"  # the queue may admit fewer pods of the job


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
            certain = all(name.known for name in (*listed, *covered)) and len(listed) == len(names)
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


def quotas(file: File) -> Iterator[Problem]:
    """A job that asks its queue for more GPUs than the queue can ever have."""
    queues = {text_of(root.get("metadata"), "name"): root for root in _of_kind(file, "ClusterQueue")}
    for root in file.nodes:
        name = text_at(root, "metadata", "labels", QUEUE_LABEL)
        queue = queues.get(_cluster_queue(file, root, name.value)) if name is not None else None
        demand, limit = _demand(root), _limit(queue) if queue is not None else None
        if name is not None and demand is not None and limit is not None and demand > limit:
            yield problem(
                name,
                f"the job needs {demand} GPUs at once, and its queue has {limit}: it waits for ever",
                "raise nominalQuota, or make the job smaller",
                why="Kueue admits a job as a whole, and this queue has no cohort to borrow from.",
            )


def _cluster_queue(file: File, job: Node, name: str) -> str:
    """The ClusterQueue behind a job's queue: teams give their queues one name, each in its own namespace."""
    place = text_of(job.get("metadata"), "namespace")
    local = [q for q in _of_kind(file, "LocalQueue") if text_of(q.get("metadata"), "name") == name]
    here = [q for q in local if text_of(q.get("metadata"), "namespace") == place] or ([] if place else local)
    targets = {text_of(q.get("spec"), "clusterQueue") for q in here}
    return targets.pop() if len(targets) == 1 else ""


def _limit(queue: Node) -> int | None:
    if queue.get("spec", "cohort") is not None or queue.get("spec", "cohortName") is not None:
        return None  # it may borrow
    total, stated = 0, False
    groups = queue.get("spec", "resourceGroups")
    for node in groups.walk() if groups is not None else ():
        if node.is_map and text_of(node, "name") == GPU:
            quota = int_at(node, "nominalQuota")
            if quota is None or not quota.known:
                return None
            total, stated = total + quota.value, True
    return total if stated else None


def _demand(root: Node) -> int | None:
    """GPUs of all pods of a PyTorchJob, MPIJob or Job."""
    spec, total = root.get("spec"), 0
    if spec is None:
        return None
    replicas = [
        one
        for key in ("pytorchReplicaSpecs", "mpiReplicaSpecs")
        for _, one in (spec.get(key) or Node({}, spec.span)).items()
    ]
    if root.get("metadata", "annotations", _SHRINKS) is not None:
        return None
    if text_of(root, "kind") == "Job":
        counts, gpus = (
            [int_at(spec, key) for key in ("parallelism", "completions")],
            gpus_of(spec.get("template", "spec")),
        )
        if gpus is None or any(count is not None and not count.known for count in counts):
            return None
        pods = min((count.value for count in counts if count is not None), default=1) if counts[0] is not None else 1
        return pods * gpus
    for replica in replicas:
        count, gpus = int_at(replica, "replicas"), gpus_of(replica.get("template", "spec"))
        if count is not None and not count.known:
            return None
        total += (count.value if count is not None else 1) * (gpus or 0)
    return total or None
