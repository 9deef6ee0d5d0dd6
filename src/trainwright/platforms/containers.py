"""The platforms that run images: what a spec says about Kubernetes and AWS Batch, as their schedulers take it. What
such a platform cannot honour is refused here, by the name of the field."""

from __future__ import annotations

from trainwright.aws.batch import BatchApi
from trainwright.errors import UserError
from trainwright.schedulers.batch import BatchScheduler
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.schedulers.launch import queue_of
from trainwright.spec.model import Job, Queue, Spec

SHARED = frozenset({"lustre", "openzfs", "efs"})


def instance_queue(spec: Spec, job: Job) -> Queue:
    """The queue of a job, which has to name an instance type where images run."""
    queue = queue_of(spec, job)
    if not queue.instance:
        raise UserError(f"queue {queue.name!r} names no instance type", fix="add `instance: p5.48xlarge` to it")
    return queue


def kubernetes_scheduler(spec: Spec, job: Job, prefix: str = "") -> KubernetesScheduler:
    """The scheduler of a job on Kubernetes. `prefix` stands before the instance type in the nodes' label."""
    queue, said = instance_queue(spec, job), spec.kubernetes
    refused = [item.mount for item in spec.storage if item.kind in ("ebs", "folder")]
    if refused:
        raise UserError(
            f"a pod cannot mount the storage at {', '.join(refused)}: it belongs to a head node or to this machine",
            where="storage",
            fix="use lustre, openzfs or efs",
        )
    claims = {item.mount: claim_name(item.mount) for item in spec.storage if item.kind in SHARED}
    unknown = set(said.claims) - {item.mount for item in spec.storage} - {m.partition(":")[0] for m in job.mounts}
    if unknown:
        raise UserError(
            f"kubernetes.claims names {', '.join(sorted(unknown))}, which neither `storage` nor the job mounts",
            fix="add it to the job's `mounts`, or take it out",
        )
    instance = queue.instance or ""
    settings = PodSettings(
        namespace=said.namespace,
        instance=instance.removeprefix("ml."),
        node_type=f"{prefix}{instance.removeprefix(prefix)}",
        claims={**claims, **said.claims},
        scratch=tuple(item.mount for item in spec.storage if item.kind == "nvme"),
        service_account=said.service_account or "",
    )
    return KubernetesScheduler(settings, job.kind or said.kind, said.context, spec.name)


def claim_name(mount: str) -> str:
    """The claim a mount folder stands for unless the spec says another: `/fsx` is `fsx`, `/data/c4` is `data-c4`."""
    return mount.strip("/").replace("/", "-").replace("_", "-").lower() or "root"


def batch_scheduler(spec: Spec, job: Job) -> BatchScheduler:
    """The scheduler of a job on AWS Batch."""
    queue, said = instance_queue(spec, job), spec.batch
    unknown = set(said.queues) - {one.name for one in spec.queues}
    if unknown:
        raise UserError(f"batch.queues names {', '.join(sorted(unknown))}, which is no queue of the spec")
    return BatchScheduler(
        said.queues.get(queue.name, f"{spec.name}-{queue.name}"),
        queue.instance or "",
        BatchApi(spec.region),
        spec.name,
        said.job_role or "",
        said.execution_role or "",
    )
