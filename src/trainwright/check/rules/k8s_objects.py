"""K8S: the objects around a training pod: indexed jobs, Ray jobs, Kueue's queues, Karpenter's node pools."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.instances import find_instance
from trainwright.catalog.versions import version_set
from trainwright.check.job_keys import unknown_job_keys
from trainwright.check.job_sizes import once
from trainwright.check.model import File, Value, known
from trainwright.check.readers.values import bool_at, int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import sizes_of
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

_GPU = "nvidia.com/gpu"
_INDEX = ("JOB_COMPLETION_INDEX", "batch.kubernetes.io/job-completion-index")
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_TYPE, _FAMILY = "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"
_ZONE, _CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
_MOVING = ("WhenEmptyOrUnderutilized", "WhenUnderutilized")
_TRAINING_CARDS = 4
_PINNED_FAMILY = "al2023"


@rule("K8S002", "error")
def jobs_and_queues_are_whole(file: File) -> Iterator[Problem]:
    """Job objects must give their pods a rank, release their GPUs, and fit their queue.

    A Job has no misspelled keys; one whose pods read JOB_COMPLETION_INDEX needs `completionMode: Indexed`. A RayJob
    with GPUs needs `shutdownAfterJobFinishes` (a warning), and a Ray worker states as many `num-gpus` as it
    requests. In Kueue the flavors of a ClusterQueue list exactly its `coveredResources`, in that order; a job must
    fit the quota of its queue where the file holds both; and the queue's label belongs on the job, not on its pods.

    Why: without an index every pod is rank 0, or none. A RayCluster keeps its GPUs after the job has ended, at the
    price of the nodes. Kueue rejects the queue, or the job waits in it for ever.

    Fix: as the message says.

    Source: Kubernetes documentation, indexed jobs; KubeRay, RayJob; Kueue 0.14, webhook of ClusterQueue.

    When to ignore: a controller of your own completes the object.
    """
    for root in file.nodes if file.format == "kubernetes" else ():
        kind = _text(root, "kind")
        if kind == "Job":
            yield from _indexed(root)
            yield from unknown_job_keys(root)
        elif kind in ("RayJob", "RayCluster"):
            yield from _ray(root, kind)
        elif kind == "ClusterQueue":
            yield from _covered(root)
        yield from _label(root, kind)
    if file.format == "kubernetes":
        yield from once([*_flavors(file), *_quota(file)])


@rule("K8S003", "warning")
def node_pools_suit_training(file: File) -> Iterator[Problem]:
    """A Karpenter node pool for training must not move its pods, spread over zones, or name capacity it cannot use.

    For pools whose types have at least four EFA cards: a consolidation policy that empties underused nodes (in
    `karpenter.sh/v1` also the default), without a budget that forbids it; several zones; `reserved` capacity with an
    EC2NodeClass in the same file that selects no reservation; an EC2NodeClass whose image is the latest one, whichever
    that is.

    Why: moving one pod stops the whole job, and every GPU of it restarts from the last checkpoint. EFA works inside one
    subnet only, so ranks in two zones talk over TCP, with 100 instead of 3,200 Gbps on p5.48xlarge. Karpenter never
    uses a reservation that no class selects. With `@latest` a node that joins later has another driver and kernel than
    the other nodes of its job.

    Fix: `consolidationPolicy: WhenEmpty`; one zone; `capacityReservationSelectorTerms` in the EC2NodeClass; an alias
    with a date.

    Source: Karpenter 1.x, disruption, capacity reservations and amiSelectorTerms; EC2 user guide, EFA limitations.

    When to ignore: every training pod carries `karpenter.sh/do-not-disrupt`, or selects a zone itself.
    """
    roots = file.nodes if file.format == "kubernetes" else []
    classes = {_text(root.get("metadata"), "name"): root for root in roots if _text(root, "kind") == "EC2NodeClass"}
    for root in roots:
        if _text(root, "kind") == "NodePool" and _text(root, "apiVersion").startswith("karpenter.sh/"):
            yield from _pool(root, classes)


def _text(node: Node | None, key: str) -> str:
    child = node.get(key) if node is not None else None
    return child.text if child is not None and child.is_scalar else ""


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
    stops = bool_at(root, "spec", "shutdownAfterJobFinishes")
    if kind == "RayJob" and any(gpus) and (stops is None or (stops.known and not stops.value)):
        yield problem(
            (stops.key or stops.span) if stops is not None else root.key_span("spec"),
            "the Ray cluster keeps its GPUs after the job has ended",
            "add shutdownAfterJobFinishes: true",
            level="warning",
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
                level="warning",
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
                    yield problem(name, f"no ResourceFlavor {name.value!r} in this file", hint, level="warning")


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


def _pool(root: Node, classes: dict[str, Node]) -> Iterator[Problem]:
    wanted = _requirements(root)
    if not _trains(wanted):
        return
    policy = text_at(root, "spec", "disruption", "consolidationPolicy")
    budgets = root.get("spec", "disruption", "budgets")
    still = any(_text(one, "nodes") in ("0", "0%") for one in (budgets.elements() if budgets is not None else ()))
    if policy is not None and policy.value in _MOVING and not still:
        yield problem(
            policy,
            f"{policy.value} moves pods off underused nodes: one move restarts the whole training job",
            'write WhenEmpty, or a budget with nodes: "0"',
        )
    name = text_at(root, "metadata", "name")
    if policy is None and name is not None and not still and _text(root, "apiVersion") == "karpenter.sh/v1":
        yield problem(
            name,
            "no consolidationPolicy: the default moves pods off underused nodes, and one move restarts the whole job",
            "add disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 10m}",
        )
    zones = wanted.get(_ZONE, [])
    if len(zones) > 1:
        yield problem(
            zones[1], "a job may be spread over several zones, and EFA works inside one only", "name one zone"
        )
    node_class = classes.get(_text(root.get("spec", "template", "spec", "nodeClassRef"), "name"))
    if node_class is not None:
        yield from _class(node_class, wanted)


def _class(node_class: Node, wanted: dict[str, list[Value[str]]]) -> Iterator[Problem]:
    """The EC2NodeClass of a pool that trains."""
    reserved = next((value for value in wanted.get(_CAPACITY, []) if value.value == "reserved"), None)
    if reserved is not None and node_class.get("spec", "capacityReservationSelectorTerms") is None:
        yield problem(
            reserved,
            f"no reservation is selected by the EC2NodeClass {_text(node_class.get('metadata'), 'name')}",
            "add capacityReservationSelectorTerms to it",
        )
    terms = node_class.get("spec", "amiSelectorTerms")
    for term in terms.elements() if terms is not None else ():
        alias = text_at(term, "alias")
        if alias is not None and alias.value.endswith("@latest"):
            family = alias.value.partition("@")[0]
            pinned = f"{family}@{version_set().eks_image}" if family == _PINNED_FAMILY else f"{family}@vDATE"
            yield problem(
                alias,
                f"{alias.value}: a node that joins later has another image than the other nodes of its job",
                f"name one image, such as {pinned}",
            )


def _requirements(root: Node) -> dict[str, list[Value[str]]]:
    """What the pool's `In` requirements allow, by key."""
    wanted: dict[str, list[Value[str]]] = {}
    listed = root.get("spec", "template", "spec", "requirements")
    for one in listed.elements() if listed is not None else ():
        if _text(one, "operator") == "In":
            wanted[_text(one, "key")] = texts_at(one, "values")
    return wanted


def _trains(wanted: dict[str, list[Value[str]]]) -> bool:
    """Whether every type that the pool allows is one that is bought for its network."""
    types = [known(value) or "" for value in wanted.get(_TYPE, [])]
    for family in wanted.get(_FAMILY, []) if not types else ():
        sizes = sizes_of(family.value)
        types += [f"{family.value}.{max(sizes, key=len)}"] if sizes else [""]
    rows = [find_instance(name) for name in types]
    return bool(rows) and all(row is not None and row.efa_cards >= _TRAINING_CARDS for row in rows)
