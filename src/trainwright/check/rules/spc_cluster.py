"""SPC: the cluster of a spec, as it would be built: its queues and its software must be possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_network
from typing import TYPE_CHECKING

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.instances import find_instance, instance
from trainwright.check.finding import Level
from trainwright.check.hyperpod_schema import hyperpod_types
from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.spec.model import Queue

MOST_LOCAL_NODES = 1000
HYPERPOD = ("hyperpod", "hyperpod-eks")
CONTROLLER, SYSTEM = "controller", "system"  # groups of a plan's own
GROUP_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
FIRST_CARD_WITHOUT_EFA = ("p6-b300.", "p6e-gb200.")
WITHOUT_STOCK_IMAGE = ("rocky8", "rocky9")
DOCKER_SYSTEMS = ("ubuntu2204", "ubuntu2404", "alinux2023")
MONITORING_SYSTEMS = ("ubuntu2204", "ubuntu2404")


def at(spec: CheckedSpec, *path: str | int, what: str, fix: str = "", level: Level | None = None) -> Problem:
    """A problem at a path of the spec; of its rule's level unless it says another."""
    return problem(spec.loaded.span(*path), what, fix, level=level)


@rule("SPC006", "error")
def queues_can_be_built(file: File) -> Iterator[Problem]:
    """A queue must name machines that exist, sold the way it asks for.

    On AWS a queue names an instance type of the catalog that is sold as its `capacity` says; a capacity block takes no
    placement group; HyperPod gives whole nodes. A local cluster has at most 1,000 nodes. On EKS only Karpenter starts
    nodes for waiting jobs: a node group with `count: {min: 0, max: 6}` stays at 0 (a warning).

    Why: the cluster would be created without these nodes, or not at all, after 15 to 20 minutes; Kueue admits jobs
    up to `max`, and their pods would wait for nodes that nobody starts.

    Fix: as the finding says; `trainwright catalog list` names instance types, `catalog update` fetches newer ones.

    Source: EC2, DescribeInstanceTypes (`supportedUsageClasses`); EC2, Capacity Blocks for ML; README of
    awsome-distributed-ai (15 to 20 minutes).

    When to ignore: never; `plan` and `submit` stop at it.
    """
    for spec in file.specs:
        on_aws = platforms()[spec.full.platform].on_aws
        for index, queue in enumerate(spec.full.queues):
            yield from _on_aws(spec, index, queue) if on_aws else ()
        if on_aws and spec.full.head.instance:
            yield from _type(spec, spec.full.head.instance, "head", "instance")
        if not on_aws and sum(queue.nodes or 1 for queue in spec.full.queues) > MOST_LOCAL_NODES:
            yield at(spec, "queues", what=f"a local cluster has at most {MOST_LOCAL_NODES} nodes", fix="ask for fewer")


def _on_aws(spec: CheckedSpec, index: int, queue: Queue) -> Iterator[Problem]:
    here = ("queues", index)
    if queue.instance is None:
        yield at(spec, *here, what=f"queue {queue.name!r} names no instance type", fix="add `instance: p5.48xlarge`")
        return
    yield from _type(spec, queue.instance, *here, "instance")
    machine, kind = find_instance(queue.instance), queue.capacity.kind
    if machine is not None and kind == "spot" and "spot" not in machine.capacity:
        yield at(spec, *here, "capacity", what=f"{machine.name} is not sold as spot", fix="remove `capacity`")
    by_karpenter = spec.full.platform == "eks" and queue.provisioner == "karpenter"  # it takes a list as it is
    if queue.capacity.reservations and spec.full.platform != "parallelcluster" and not by_karpenter:
        what = f"platform {spec.full.platform} makes no group of reservations; ParallelCluster's `up` does"
        yield at(spec, *here, "capacity", what=what, fix="make a resource group and name its ARN: {group: arn:…}")
    if kind == "block" and queue.placement not in (None, False):
        yield at(
            spec, *here, "placement", what="a capacity block is placed by AWS; with a placement group no node starts",
            fix="remove `placement`",
        )  # fmt: skip
    if spec.full.platform == "eks":
        yield from _on_eks(spec, index, queue)
    if spec.full.platform == "batch" and kind == "spot":
        yield at(
            spec, *here, "capacity", what="Batch runs no job of several nodes on spot capacity", fix="remove `capacity`"
        )
    yield from _on_hyperpod(spec, index, queue) if spec.full.platform in HYPERPOD else ()
    if kind == "plan" and spec.full.platform not in HYPERPOD:
        yield at(
            spec, *here, "capacity", what="a training plan is SageMaker's: only HyperPod takes nodes from it",
            fix="use platform hyperpod or hyperpod-eks, or another capacity",
        )  # fmt: skip


def _on_hyperpod(spec: CheckedSpec, index: int, queue: Queue) -> Iterator[Problem]:
    here, machine = ("queues", index), find_instance(queue.instance or "")
    if queue.capacity.kind in ("reservation", "block", "group"):
        yield at(
            spec, *here, "capacity", what="HyperPod takes no capacity reservation of EC2",
            fix="buy a SageMaker training plan and name it: `capacity: {plan: arn:…}`",
        )  # fmt: skip
    if machine is not None and f"ml.{machine.name}" not in hyperpod_types():
        yield at(
            spec, *here, "instance", what=f"HyperPod does not offer {machine.name}",
            fix="`trainwright catalog list` names instance types; HyperPod has most with accelerators",
        )  # fmt: skip
    if not GROUP_NAME.fullmatch(queue.name):
        fix = "name the queue with letters, digits and hyphens"
        yield at(spec, *here, "name", what=f"{queue.name!r} is no name of an instance group", fix=fix)
    if queue.name in (CONTROLLER, SYSTEM):
        what = f"the plan has an instance group `{queue.name}` of its own"
        yield at(spec, *here, "name", what=what, fix="name the queue something else")
    if spec.full.platform == "hyperpod" and not queue.exclusive and machine is not None and machine.gpus:
        yield at(
            spec, *here, "exclusive", what="HyperPod's Slurm does not count GPUs, so two jobs cannot share a node",
            fix="leave `exclusive: false` out",
        )  # fmt: skip


def _on_eks(spec: CheckedSpec, index: int, queue: Queue) -> Iterator[Problem]:
    machine = find_instance(queue.instance or "")
    if queue.name == "system":
        yield at(
            spec, "queues", index, "name", what="the plan has a node group `system` of its own, for controllers",
            fix="name the queue something else",
        )  # fmt: skip
    yield from _provisioner(spec, index, queue)
    by_eksctl = queue.provisioner != "karpenter"
    if machine and by_eksctl and queue.efa is not False and machine.name.startswith(FIRST_CARD_WITHOUT_EFA):
        yield at(
            spec, "queues", index, "instance",
            what=f"eksctl asks for EFA on every network card, and the first of {machine.name} has none: no node starts",
            fix="use `provisioner: karpenter`, parallelcluster or hyperpod for this type, or set `efa: false`",
        )  # fmt: skip


def _provisioner(spec: CheckedSpec, index: int, queue: Queue) -> Iterator[Problem]:
    """What Karpenter, managed and self-managed node groups cannot do."""
    from trainwright.spec.defaults import node_provisioner

    here, capacity = ("queues", index), queue.capacity
    if node_provisioner(queue)[0] != "karpenter" and queue.count is not None and queue.count.min < queue.count.max:
        yield at(
            spec, *here, "count", level="warning",
            what=f"nobody starts more than {queue.count.min} nodes: EKS does not grow a node group with waiting jobs",
            fix=f"`count: {{min: 0, max: {queue.count.max}}}` with `provisioner: karpenter`, or "
            f"`count: {queue.count.max}`",
        )  # fmt: skip
    if queue.provisioner == "karpenter" and queue.count is not None and queue.count.min:
        yield at(
            spec, *here, "count", what=f"Karpenter keeps no node up without a job, the queue wants {queue.count.min}",
            fix=f"write `count: {{min: 0, max: {queue.count.max}}}`, or `provisioner: managed`",
        )  # fmt: skip
    if queue.provisioner == "karpenter" and capacity.kind == "group" and not capacity.reservations:
        yield at(
            spec, *here, "capacity", what="Karpenter takes reservations by their ids, not a group's ARN",
            fix="list them: `capacity: {group: [cr-…, cr-…]}`, or `provisioner: managed`",
        )  # fmt: skip
    if queue.provisioner == "self-managed" and queue.efa is not False and capacity.kind not in ("on-demand", "spot"):
        yield at(
            spec, *here, "provisioner",
            what="eksctl puts a self-managed group with EFA into a new placement group, where no capacity is reserved",
            fix="use `provisioner: managed`",
        )  # fmt: skip


def _type(spec: CheckedSpec, name: str, *path: str | int) -> Iterator[Problem]:
    try:
        instance(name)
    except UserError as error:
        yield at(spec, *path, what=error.what, fix=error.fix)


@rule("SPC008", "error")
def software_can_be_installed(file: File) -> Iterator[Problem]:
    """Image, container runtime and access of a spec must be possible on its operating system.

    Batch's own images have no Neuron driver: queues of Trainium need an image of your own.

    Why: the head node would not come up, and ParallelCluster waits 35 minutes (2,100 seconds) for it; or its ssh
    port would be open to nobody; nodes would start without their accelerators.

    Fix: as the finding says.

    Source: ParallelCluster, official images; the boot scripts under platforms/parallelcluster; Batch, image types
    of compute environments; ParallelCluster 3.16, NODE_BOOTSTRAP_TIMEOUT.

    When to ignore: never; `plan` stops at it.
    """
    for spec in file.specs:
        if spec.full.platform == "parallelcluster":
            yield from _software(spec)
        if spec.full.platform == "batch":
            yield from _neuron_driver(spec)
        yield from _ssh(spec)


def _software(spec: CheckedSpec) -> Iterator[Problem]:
    software = spec.full.software
    if software.image == "stock" and software.os in WITHOUT_STOCK_IMAGE:
        yield at(
            spec, "software", "os", what=f"there is no stock image for {software.os}", fix="name an image of your own"
        )
    if software.image != "stock" and not software.image.startswith("ami-"):
        yield at(spec, "software", "image", what=f"{software.image!r} is not an image", fix="write stock, or ami-…")
    if "docker" in (software.containers or "") and software.os not in DOCKER_SYSTEMS:
        yield at(
            spec, "software", "containers", what=f"our boot script installs no docker on {software.os}",
            fix=f"use {', '.join(DOCKER_SYSTEMS)}, or an image that has it and `containers: none`",
        )  # fmt: skip
    if spec.full.monitoring and software.os not in MONITORING_SYSTEMS:
        yield at(
            spec, "monitoring", what=f"the exporters are not installed on {software.os} by our scripts",
            fix=f"use {' or '.join(MONITORING_SYSTEMS)}",
        )  # fmt: skip


def _neuron_driver(spec: CheckedSpec) -> Iterator[Problem]:
    for index, queue in enumerate(spec.full.queues):
        machine = find_instance(queue.instance or "")
        if machine is not None and machine.is_neuron and not spec.full.software.image.startswith("ami-"):
            yield at(
                spec, "queues", index, "instance",
                what=f"Batch's own image has no Neuron driver: no job sees the accelerators of {machine.name}",
                fix="name an image for ECS that has it: `software: {image: ami-…}`",
            )  # fmt: skip


def _ssh(spec: CheckedSpec) -> Iterator[Problem]:
    addresses = spec.full.head.ssh_from
    if addresses is None:
        return
    try:
        ip_network(addresses)
    except ValueError as error:
        yield at(
            spec,
            "head",
            "ssh_from",
            what=f"{addresses!r} is no range of addresses: {error}",
            fix="write a CIDR such as 203.0.113.0/24",
        )
