"""The platforms that run images: what a spec says about Kubernetes and AWS Batch, as their schedulers take it."""

from __future__ import annotations

from trainwright.aws.batch import BatchApi
from trainwright.catalog.instances import find_instance
from trainwright.schedulers.batch import BatchScheduler
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.spec.defaults import node_provisioner
from trainwright.spec.job import Job
from trainwright.spec.model import Queue, Spec

OURS = ("eks", "hyperpod-eks")  # platforms whose Kubernetes cluster a plan makes
HEALTH = "sagemaker.amazonaws.com/node-health-status"
DEEP_HEALTH = "sagemaker.amazonaws.com/deep-health-check-status"
# HyperPod starts the job again on a healthy node; our trainer goes on from its last checkpoint.
RESUMED = {"sagemaker.amazonaws.com/enable-job-auto-resume": "true", "sagemaker.amazonaws.com/job-max-retry-count": "5"}
# What EC2 tells of a node's place in the network (DescribeInstanceTopology), for these types and of whole machines.
LAYERS = tuple(f"topology.k8s.aws/network-node-layer-{number}" for number in (1, 2, 3))
IN_TOPOLOGY = ("p4d", "p5", "p6", "trn")
SHARED = frozenset({"lustre", "openzfs", "efs"})


def queue_of(spec: Spec, job: Job) -> Queue:
    """The queue of a checked job; the first one where it names none."""
    queue = spec.queue(job.queue) if job.queue else spec.queues[0]
    assert queue is not None, "check: SPC002"
    return queue


def kubernetes_scheduler(spec: Spec, job: Job, prefix: str = "") -> KubernetesScheduler:
    """The scheduler of a job on Kubernetes. `prefix` stands before the instance type in the nodes' label."""
    queue, said = queue_of(spec, job), spec.kubernetes
    claims = {item.mount: claim_name(item.mount) for item in spec.storage if item.kind in SHARED}
    instance = queue.instance or ""
    settings = PodSettings(
        namespace=said.namespace,
        instance=instance.removeprefix("ml."),
        node_type=f"{prefix}{instance.removeprefix(prefix)}",
        claims={**claims, **said.claims},
        scratch=tuple(item.mount for item in spec.storage if item.kind == "nvme"),
        service_account=service_account(spec),
        kueue=said.kueue or (queue.name if spec.platform in OURS else ""),  # the plan's own queue of Kueue
        huge_pages=not (spec.platform == "eks" and node_provisioner(queue)[0] == "karpenter"),
        gang=said.gang or "",
        node_labels=_healthy(spec),
        annotations=RESUMED if spec.platform == "hyperpod-eks" else {},
        efa=queue.efa is not False,
        shared=tuple(i.mount for i in spec.storage if spec.platform in OURS and i.lustre and i.lustre.id is None),
        topology=next(reversed(network_layers(spec, queue)), ""),
    )
    return KubernetesScheduler(settings, job.kind or said.kind, said.context, spec.name)


def network_layers(spec: Spec, queue: Queue) -> tuple[str, ...]:
    """The labels that say where in the network a queue's nodes are, the widest part first; none where nodes lack them,
    or come only with a job: Kueue admits by topology what fits on nodes that are there."""
    type_ = find_instance((queue.instance or "").removeprefix("ml."))
    if spec.platform not in OURS or type_ is None or not type_.name.startswith(IN_TOPOLOGY) or type_.efa_cards < 4:
        return ()
    if spec.platform == "eks" and node_provisioner(queue)[0] == "karpenter":
        return ()
    return LAYERS


def _healthy(spec: Spec) -> dict[str, str]:
    """The labels of nodes that a job of HyperPod may run on: those its agent holds for healthy."""
    if spec.platform != "hyperpod-eks":
        return {}
    return {HEALTH: "Schedulable", **({DEEP_HEALTH: "Passed"} if spec.hyperpod.health_checks else {})}


def service_account(spec: Spec) -> str:
    """Whose rights the pods of jobs have: as the spec says, or the account that a plan of ours makes for buckets."""
    made = "trainwright" if spec.platform in OURS and any(item.bucket for item in spec.storage) else ""
    return spec.kubernetes.service_account or made


def claim_name(mount: str) -> str:
    """The claim a mount folder stands for unless the spec says another: `/fsx` is `fsx`, `/data/c4` is `data-c4`."""
    return mount.strip("/").replace("/", "-").replace("_", "-").lower() or "root"


def batch_scheduler(spec: Spec, job: Job) -> BatchScheduler:
    """The scheduler of a job on AWS Batch."""
    queue, said = queue_of(spec, job), spec.batch
    return BatchScheduler(
        said.queues.get(queue.name, f"{spec.name}-{queue.name}"),
        queue.instance or "",
        BatchApi(spec.region),
        spec.name,
        said.job_role or "",
        said.execution_role or "",
        queue.efa is not False,
        spec.tags,
    )
