"""HYP: what a spec asks of HyperPod and SageMaker does not have: training plans of another region, controller types,
jobs that come back in any namespace."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.instances import find_instance
from trainwright.check.hyperpod_schema import hyperpod_types
from trainwright.check.model import File
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.spc_cluster import HYPERPOD, at
from trainwright.spec.source import Node

_RESUME = "sagemaker.amazonaws.com/enable-job-auto-resume"


@rule("HYP004", "error")
def training_plan_is_in_the_region(file: File) -> Iterator[Problem]:
    """A queue's training plan must be one of the cluster's region.

    The region is the fourth part of the plan's ARN: `arn:aws:sagemaker:REGION:ACCOUNT:training-plan/NAME`.

    Why: SageMaker refuses the instance group, after network, file systems and database were created.

    Fix: set `region` to that of the plan, or name a plan of this region.

    Source: SageMaker, training plans: a plan reserves capacity in one zone of one region.

    When to ignore: never; `plan` and `up` stop at it.
    """
    for spec in file.specs:
        for index, queue in enumerate(spec.full.queues):
            if queue.capacity.kind != "plan" or spec.full.platform not in HYPERPOD or not spec.full.region:
                continue
            place = (queue.capacity.id or "").split(":")[3]
            if place != spec.full.region:
                what = f"the training plan of queue {queue.name!r} is in {place or 'no region'}, not {spec.full.region}"
                fix = (
                    f"write `region: {place}`, or name a plan of {spec.full.region}" if place else "write the whole ARN"
                )
                yield at(spec, "queues", index, "capacity", what=what, fix=fix)


@rule("HYP005", "error")
def controller_is_a_type_of_hyperpod(file: File) -> Iterator[Problem]:
    """The controller of HyperPod with Slurm must be of a type that SageMaker offers there.

    `head.instance` becomes the instance group `controller`, as `ml.TYPE`; HyperPod has fewer types than EC2.

    Why: SageMaker refuses the whole cluster, after network, file systems and database were created.

    Fix: take a type of the list in the message, or leave `head.instance` out.

    Source: SageMaker CreateCluster, the values of `ClusterInstanceType`.

    When to ignore: the type is newer than the table, whose date `trainwright catalog` shows.
    """
    for spec in file.specs:
        machine = find_instance(spec.full.head.instance or "")
        if spec.full.platform != "hyperpod" or machine is None or f"ml.{machine.name}" in hyperpod_types():
            continue
        family = machine.name.partition(".")[0]
        same = [name.removeprefix("ml.") for name in hyperpod_types() if name.startswith(f"ml.{family}.")]
        fix = f"take one of {', '.join(same)}" if same else "take one such as m5.2xlarge, or leave `head.instance` out"
        yield at(spec, "head", "instance", what=f"HyperPod does not offer {machine.name} as a controller", fix=fix)


@rule("HYP006", "warning")
def jobs_come_back_in_their_namespace(file: File) -> Iterator[Problem]:
    """On HyperPod with EKS, jobs start again by themselves only as PyTorchJobs in certain namespaces.

    HyperPod resumes a job on a healthy node after it replaced one, if the job is a PyTorchJob in the namespace
    `kubeflow` or in one whose name starts with `hyperpod-`. Jobs elsewhere, and of other kinds, have the annotation
    without effect. Read from specs of platform hyperpod-eks and from manifests with the annotation
    `sagemaker.amazonaws.com/enable-job-auto-resume`.

    Why: after a node was replaced, the job stays down until somebody submits it again, on nodes that are paid for:
    55 USD per hour for each p5.48xlarge (us-east-2, August 2026).

    Fix: set `kubernetes: {namespace: kubeflow}` (or a `hyperpod-…` one), and leave `kind` at pytorchjob.

    Source: SageMaker HyperPod with EKS, job auto-resume.

    When to ignore: the job's own controller restarts it: a JobSet or TrainJob with a restart policy.
    """
    for node in file.nodes if file.format == "kubernetes" else ():
        yield from _annotated(node)
    for spec in file.specs:
        if spec.full.platform != "hyperpod-eks":
            continue
        said, fix = spec.full.kubernetes, "write `kubernetes: {namespace: kubeflow}`, or one named hyperpod-…"
        if not _resumes(said.namespace):
            path = ("kubernetes", "namespace") if spec.loaded.node.get("kubernetes", "namespace") else ("platform",)
            what = f"HyperPod does not start jobs again in namespace {said.namespace!r}"
            yield at(spec, *path, what=what, fix=fix)
        for index, job in enumerate(spec.full.jobs):
            kind = job.kind or said.kind
            if kind != "pytorchjob":
                what = f"HyperPod starts PyTorchJobs again, and job {job.name!r} is a {kind}"
                yield at(spec, "jobs", index, *(("kind",) if job.kind else ()), what=what, fix="use kind: pytorchjob")


def _annotated(root: Node) -> Iterator[Problem]:
    """A manifest that asks HyperPod to start its job again, where HyperPod does not. A namespace may also be given to
    kubectl: a manifest without one is not judged by it."""
    metadata = root.get("metadata") if root.is_map else None
    asked = text_at(metadata.get("annotations"), _RESUME) if metadata is not None and metadata.is_map else None
    if metadata is None or asked is None or asked.value != "true":
        return
    kind, namespace = text_at(root, "kind"), text_at(metadata, "namespace")
    if kind is not None and kind.value == "HyperPodPyTorchJob":
        return  # HyperPod's own operator, which has other rules
    if kind is not None and kind.value != "PyTorchJob":
        yield problem(
            kind,
            f"HyperPod starts PyTorchJobs again, and this is a {kind.value}",
            "use a PyTorchJob, or remove the annotation",
        )
    elif namespace is not None and namespace.known and not _resumes(namespace.value):
        what = f"HyperPod does not start jobs again in namespace {namespace.value!r}"
        yield problem(namespace, what, "use namespace kubeflow or one named hyperpod-…, or remove the annotation")


def _resumes(namespace: str) -> bool:
    return namespace == "kubeflow" or namespace.startswith(("hyperpod", "aws-hyperpod"))
