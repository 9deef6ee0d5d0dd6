"""K8S: the objects around a training pod: indexed jobs, Ray jobs, Kueue's queues."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.job_sizes import once
from trainwright.check.model import File
from trainwright.check.readers.values import bool_at, int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_ray import head_ports
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

_GPU = "nvidia.com/gpu"
_INDEX = ("JOB_COMPLETION_INDEX", "batch.kubernetes.io/job-completion-index")
_MPI, _NP = re.compile(r"\bmpi(?:run|exec)\b"), re.compile(r"(?<!\S)-np?\s+(\d+)(?!\S)")
_PER_NODE = re.compile(r"(?<!\S)(?:-N|-{1,2}npernode)\s+(\d+)(?!\S)|ppr:(\d+):node")
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@rule("K8S002", "error")
def jobs_and_queues_are_whole(file: File) -> Iterator[Problem]:
    """Job objects must give their pods a rank, release their GPUs, and fit their queue.

    A Job has as many completions as parallel pods (a warning), and pods that are not always
    restarted; mpirun of an MPIJob has ranks for every worker (a warning); a PyTorchJob has one master, and a container
    named `pytorch` in each pod; one whose pods read JOB_COMPLETION_INDEX needs `completionMode: Indexed`. A RayJob
    with GPUs needs `shutdownAfterJobFinishes` (a warning), and a Ray worker states as many `num-gpus` as it requests.
    The ports of a Ray head differ from each other, from the defaults (10001 for Ray's clients, 8265 and 52365 of the
    dashboard) and from those of the workers (10002 to 19999).
    In Kueue the flavors of a ClusterQueue list exactly its `coveredResources`, in that order; a job must fit the quota
    of its queue where the file holds both; and the queue's label belongs on the job, not on its pods.

    Why: without an index every pod is rank 0, or none. `ray start` refuses a port that is used twice. A RayCluster
    keeps its GPUs after the job has ended, at the price of the nodes. Kueue rejects the queue, or the job waits in it
    for ever.

    Fix: as the message says.

    Source: Kubernetes documentation, indexed jobs; KubeRay, RayJob; Ray 2.60, `ray start`; Kueue 0.14, webhook of
    ClusterQueue.

    When to ignore: a controller of your own completes the object.
    """
    for root in file.nodes if file.format == "kubernetes" else ():
        kind = _text(root, "kind")
        if kind == "Job":
            yield from _indexed(root)
        elif kind in ("RayJob", "RayCluster"):
            yield from _ray(root, kind)
        elif kind == "ClusterQueue":
            yield from _covered(root)
        yield from _label(root, kind)
        yield from (p for spec in _job_specs(root, kind) for p in _pods_of_job(spec))
        if kind == "PyTorchJob":
            yield from _pytorch_job(file, root)
        elif kind == "MPIJob":
            yield from _mpi_ranks(root)
    if file.format == "kubernetes":
        yield from once([*_flavors(file), *_quota(file)])


def _text(node: Node | None, key: str) -> str:
    child = node.get(key) if node is not None else None
    return child.text if child is not None and child.is_scalar else ""


def _job_specs(root: Node, kind: str) -> list[Node]:
    """The specs of the Jobs that an object makes."""
    paths = {"Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}
    replicated = root.get("spec", "replicatedJobs") if kind == "JobSet" else None
    specs = [one.get("template", "spec") for one in replicated.elements()] if replicated is not None else []
    specs += [root.get(*paths[kind])] if kind in paths else []
    return [spec for spec in specs if spec is not None and spec.is_map]


def _pods_of_job(spec: Node) -> Iterator[Problem]:
    together, total = int_at(spec, "parallelism"), int_at(spec, "completions")
    if together is not None and total is not None and together.known and total.known and together.value > total.value:
        yield problem(
            total,
            f"parallelism is {together.value}, but a job with {total.value} completions starts {total.value} pods",
            f"write completions: {together.value}",
            level="warning",
        )
    restart = text_at(spec, "template", "spec", "restartPolicy")
    if restart is not None and restart.value == "Always":
        yield problem(restart, "restartPolicy Always: Kubernetes rejects the job", "write Never or OnFailure")


def _pytorch_job(file: File, root: Node) -> Iterator[Problem]:
    """What the training operator rejects."""
    replicas = root.get("spec", "pytorchReplicaSpecs")
    for role, replica in replicas.items() if replicas is not None else ():
        count = int_at(replica, "replicas")
        if role == "Master" and count is not None and count.known and count.value > 1:
            yield problem(
                count, f"{count.value} masters: the training operator allows 1", "write 1, and the others as Worker"
            )
        listed = replica.get("template", "spec", "containers")
        names = [text_at(one, "name") for one in listed.elements()] if listed is not None else []
        first = names[0] if names else None
        if (
            first is not None
            and not file.template
            and all(n is None or (n.known and n.value != "pytorch") for n in names)
        ):
            yield problem(
                first,
                "no container is named pytorch: the training operator rejects the job",
                "name the one that trains pytorch",
            )


def _mpi_ranks(root: Node) -> Iterator[Problem]:
    """`mpirun -np 16 -N 8` in front of 16 workers fills 2 of them."""
    count = int_at(root, "spec", "mpiReplicaSpecs", "Worker", "replicas")
    listed = root.get("spec", "mpiReplicaSpecs", "Launcher", "template", "spec", "containers")
    for one in listed.elements() if listed is not None and count is not None and count.known else ():
        stated = [one.get(key) for key in ("command", "args")]
        words = [w for node in stated if node is not None for w in (node.elements() if node.is_list else [node])]
        text = " ".join(word.text for word in words if word.is_scalar)
        total, each = _NP.findall(text), [a or b for a, b in _PER_NODE.findall(text)]
        # Further ones are options of the program.
        if count is None or len(_MPI.findall(text)) != 1 or not total or not each or int(each[0]) == 0:
            continue
        used = -(-int(total[0]) // int(each[0]))
        if used < count.value:
            yield problem(
                count,
                f"mpirun starts {total[0]} ranks, {each[0]} per node: {used} of the {count.value} workers have any",
                f"start {count.value * int(each[0])} ranks, or write {used} here",
                level="warning",
            )


def _indexed(root: Node) -> Iterator[Problem]:
    spec = root.get("spec")
    mode = text_at(spec, "completionMode")
    pods = root.get("spec", "template", "spec")
    if spec is None or pods is None or (mode is not None and (mode.value == "Indexed" or not mode.known)):
        return
    for node in pods.walk():
        if node.is_scalar and any(name in node.text for name in _INDEX):
            yield problem(
                mode or root.key_span("spec"),
                "the pods read JOB_COMPLETION_INDEX, which only an indexed job sets: no pod knows its rank",
                "add completionMode: Indexed, and completions equal to parallelism",
            )
            return


def _ray(root: Node, kind: str) -> Iterator[Problem]:
    spec = root.get("spec", "rayClusterSpec") if kind == "RayJob" else root.get("spec")
    if spec is None or not spec.is_map:
        return
    groups = spec.get("workerGroupSpecs")
    workers = [one for one in groups.elements() if one.is_map] if groups is not None else []
    gpus = [_gpus(worker.get("template", "spec")) for worker in workers]
    for worker, amount in zip(workers, gpus, strict=True):
        stated = int_at(worker, "rayStartParams", "num-gpus")
        if stated is not None and stated.known and amount is not None and amount != stated.value:
            yield problem(
                stated,
                f"num-gpus is {stated.value}, and the worker requests {amount} GPUs",
                f"write {amount}, or leave num-gpus out: KubeRay reads the limit",
            )
    yield from head_ports(spec)
    stops = bool_at(root, "spec", "shutdownAfterJobFinishes")
    if kind == "RayJob" and any(gpus) and (stops is None or (stops.known and not stops.value)):
        yield problem(
            (stops.key or stops.span) if stops is not None else root.key_span("spec"),
            "the Ray cluster keeps its GPUs after the job has ended",
            "add shutdownAfterJobFinishes: true",
            level="info",
        )


def _gpus(pod: Node | None) -> int | None:
    """GPUs that the containers of a pod template request together."""
    containers = pod.get("containers") if pod is not None else None
    amounts = [
        int_at(one, "resources", "limits", _GPU) or int_at(one, "resources", "requests", _GPU)
        for one in (containers.elements() if containers is not None else ())
    ]
    stated = [amount for amount in amounts if amount is not None]
    return sum(amount.value for amount in stated) if stated and all(amount.known for amount in stated) else None


def _covered(root: Node) -> Iterator[Problem]:
    groups = root.get("spec", "resourceGroups")
    for group in groups.elements() if groups is not None else ():
        covered = texts_at(group, "coveredResources")
        flavors = group.get("flavors")
        for flavor in flavors.elements() if flavors is not None and covered else ():
            resources = flavor.get("resources")
            names = [text_at(one, "name") for one in (resources.elements() if resources is not None else ())]
            listed = [name for name in names if name is not None]
            if [one.value for one in listed] != [one.value for one in covered] and all(c.known for c in covered):
                yield problem(
                    resources or flavor,
                    f"the resources of flavor {_text(flavor, 'name')} must be {', '.join(c.value for c in covered)}, "
                    "in that order: Kueue rejects the queue",
                    "list the same resources as coveredResources",
                )


def _label(root: Node, kind: str) -> Iterator[Problem]:
    """The queue's label on the pods of a job that has none itself."""
    if kind in ("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet") or text_at(
        root, "metadata", "labels", _QUEUE_LABEL
    ):
        return
    spec = root.get("spec")
    for node in spec.walk() if spec is not None else ():
        label = node.get("metadata", "labels", _QUEUE_LABEL) if node.is_map else None
        if label is not None and label.is_scalar:
            yield problem(
                label,
                f"the queue is named on the pods, not on the {kind}: Kueue does not queue the job as a whole",
                f"move {_QUEUE_LABEL} to metadata.labels of the {kind}",
                level="info",  # pods may be queued one by one on purpose
            )
            return


def _of_kind(file: File, kind: str) -> list[Node]:
    return [root for root in file.nodes if _text(root, "kind") == kind]


def _flavors(file: File) -> Iterator[Problem]:
    """A flavor that is one letter from one that the file defines."""
    defined = [_text(root.get("metadata"), "name") for root in _of_kind(file, "ResourceFlavor")]
    for queue in _of_kind(file, "ClusterQueue"):
        groups = queue.get("spec", "resourceGroups")
        for group in groups.elements() if groups is not None else ():
            flavors = group.get("flavors")
            for flavor in flavors.elements() if flavors is not None else ():
                name = text_at(flavor, "name")
                hint = did_you_mean(name.value, defined) if name is not None and name.known else ""
                if name is not None and name.value not in defined and hint:
                    yield problem(name, f"no ResourceFlavor {name.value!r} in this file", hint, level="info")


def _quota(file: File) -> Iterator[Problem]:
    """A job that asks its queue for more GPUs than the queue can ever have."""
    queues = {_text(root.get("metadata"), "name"): root for root in _of_kind(file, "ClusterQueue")}
    local = {
        _text(q.get("metadata"), "name"): _text(q.get("spec"), "clusterQueue") for q in _of_kind(file, "LocalQueue")
    }
    for root in file.nodes:
        name = text_at(root, "metadata", "labels", _QUEUE_LABEL)
        queue = queues.get(local.get(name.value, "")) if name is not None else None
        demand, limit = _demand(root), _limit(queue) if queue is not None else None
        if name is not None and demand is not None and limit is not None and demand > limit:
            yield problem(
                name,
                f"the job needs {demand} GPUs at once, and its queue has {limit}: it waits for ever",
                "raise nominalQuota, or make the job smaller",
            )


def _limit(queue: Node) -> int | None:
    if queue.get("spec", "cohort") is not None or queue.get("spec", "cohortName") is not None:
        return None  # it may borrow
    total, stated = 0, False
    groups = queue.get("spec", "resourceGroups")
    for node in groups.walk() if groups is not None else ():
        if node.is_map and _text(node, "name") == _GPU:
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
    if _text(root, "kind") == "Job":
        count, gpus = int_at(spec, "parallelism"), _gpus(spec.get("template", "spec"))
        return (count.value if count is not None and count.known else 1) * gpus if gpus is not None else None
    for replica in replicas:
        count, gpus = int_at(replica, "replicas"), _gpus(replica.get("template", "spec"))
        if count is not None and not count.known:
            return None
        total += (count.value if count is not None else 1) * (gpus or 0)
    return total or None
