"""HYP: SageMaker HyperPod: its two files against each other, and what its Slurm cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import Cluster, File, Queue, Value, known
from trainwright.check.readers.hyperpod import CONFIG, PROVISIONING, is_masked, part
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import edit_to
from trainwright.spec.source import Node

_MAX_GROUPS = 100
_BUCKET = re.compile(r"s3://([^/]+)")
_LUSTRE_NAME = re.compile(r"fs-[0-9a-f]{8,17}\.fsx\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")

_NO_HOST = re.compile(r"fs-[0-9a-f]{8,17}|arn:.*|.*[@/].*|[a-z0-9]{8}")  # an id, an ARN, a path, a mount name

_NO_LOGIN = "no node of the cluster becomes a login node; the controller and the workers are set up as usual."
_REQUEST = "SageMaker refuses the request, and no node is started."


@rule("HYP001", "error")
def hyperpod_files_agree(file: File) -> Iterator[Problem]:
    """HyperPod's cluster configuration and provisioning parameters must be valid and agree.

    Groups that the provisioning parameters name exist in the cluster configuration (a login group without nodes is a
    note), the controller is not a worker,
    and has one node unless they describe several; the Lustre DNS name and mount name are given both or not at all;
    lifecycle scripts are in a bucket whose name starts with `sagemaker-` (a note: the execution role may have a policy
    of its own); instance types start with `ml.`; ThreadsPerCore is 1 or 2, NodeRecovery Automatic or None; at most 100
    groups.

    Why: the cluster is created, the lifecycle scripts fail on every node, and everything is rolled back; a group
    that does not reach its minimum count is rolled back after 3 hours.

    Fix: as the message says.

    Source: SageMaker CreateCluster; the lifecycle scripts of the reference architecture and the gaps in their own
    check; SageMaker API reference, MinInstanceCount.

    When to ignore: the execution role has its own policy for a bucket with another name.
    """
    for cluster in file.clusters:
        if cluster.platform == "hyperpod" and file.format in ("hyperpod", "cloudformation", "terraform"):
            yield from _cluster(file, cluster)
    if file.format != "hyperpod":
        return
    for root in file.nodes:
        if part(root) == PROVISIONING:
            config = file.siblings.get(CONFIG)
            yield from _provisioning(
                root, _groups(config) if config is not None and _reads_parameters(config) else None
            )
    beside = file.siblings.get(PROVISIONING)
    if beside is not None and beside.nodes and _reads_parameters(file):
        yield from _unused(file, beside.nodes[0])
        yield from _controllers(file, beside)


def _reads_parameters(config: File) -> bool:
    """Whether a cluster has its partitions from the provisioning parameters: not one of EKS, nor one whose own file
    configures Slurm."""
    stated = any(root.get("Orchestrator") is not None for root in config.nodes)
    groups = [group for root in config.nodes for group in (root.get("InstanceGroups") or root).elements()]
    return not stated and not any(group.get("SlurmConfig") is not None for group in groups)


def _cluster(file: File, cluster: Cluster) -> Iterator[Problem]:
    recovery = cluster.extra.get("node_recovery")
    if recovery is not None and recovery.known and recovery.value not in ("Automatic", "None"):
        meant = {"automatic": "Automatic", "none": "None"}.get(recovery.value.lower())
        yield problem(
            recovery,
            f"unknown NodeRecovery {recovery.value!r}",
            "write Automatic or None",
            why=_REQUEST,
            edit=edit_to(file, recovery, meant) if meant is not None and file.format == "hyperpod" else None,
        )
    for queue in cluster.queues:
        yield from _group(file, queue)
    if len(cluster.queues) > _MAX_GROUPS:
        yield problem(
            cluster.queues[_MAX_GROUPS].span,
            f"{len(cluster.queues)} instance groups; HyperPod allows {_MAX_GROUPS}",
            f"keep {_MAX_GROUPS} or fewer",
            why=_REQUEST,
        )


def _group(file: File, queue: Queue) -> Iterator[Problem]:
    for value in queue.instances:
        if value.known and not value.value.startswith("ml."):
            yield problem(
                value,
                f"{queue.label}: HyperPod's instance types start with ml.",
                f"write ml.{value.value}",
                why=_REQUEST,
                edit=edit_to(file, value, f"ml.{value.value}") if file.format == "hyperpod" else None,
            )
    threads = queue.extra.get("threads_per_core")
    if threads is not None and threads.known and threads.value not in (1, 2):
        yield problem(threads, f"{queue.label}: {threads.value} threads per core", "write 1 or 2", why=_REQUEST)
    scripts = queue.extra.get("lifecycle")
    bucket = _BUCKET.match(scripts.value) if scripts is not None and scripts.known else None
    if scripts is not None and scripts.known and bucket is None and not is_masked(scripts.value):
        yield problem(
            scripts, f"{queue.label}: {scripts.value!r} is not an s3:// address", "write s3://sagemaker-…/prefix/",
            level="info" if scripts.value.startswith("https://") else None,  # CreateCluster takes it
            why=_REQUEST,
        )  # fmt: skip
    elif scripts is not None and bucket is not None and not bucket[1].startswith("sagemaker-"):
        yield problem(
            scripts,
            f"HyperPod's managed policy reads buckets named sagemaker-…, not {bucket[1]}",
            "use a bucket whose name starts with sagemaker-, or give the execution role a policy for this one",
            level="info",  # the role is not in this file
            why=reasons.UNREADABLE_BUCKET,
        )


def _groups(config: File | None) -> set[str] | None:
    """The instance groups of the configuration in the same directory; None when there is none or a name is unknown."""
    if config is None or not config.clusters:
        return None
    names = [queue.name for cluster in config.clusters for queue in cluster.queues]
    if any(name is None or not name.known for name in names):
        return None
    return {name.value for name in names if name is not None}


def _named(root: Node) -> list[Value[str]]:
    """Every group the provisioning parameters name, with its place."""
    groups = [text_at(root, "controller_group"), text_at(root, "login_group"), *_workers(root)]
    return [value for value in groups if value is not None and value.value]


def _workers(root: Node) -> list[Value[str]]:
    workers = root.get("worker_groups")
    names = [text_at(one, "instance_group_name") for one in workers.elements()] if workers is not None else []
    return [value for value in names if value is not None]


def _provisioning(root: Node, groups: set[str] | None) -> Iterator[Problem]:
    login = text_at(root, "login_group")
    for value in _named(root):
        if groups is not None and value.known and value.value not in groups:
            is_login = login is not None and value.span == login.span
            yield problem(
                value,
                f"cluster-config.json has no instance group {value.value!r}",
                f"name one of its groups: {', '.join(sorted(groups))}",
                level="info" if is_login else None,  # the scripts only compare the name with that of each node
                why=_NO_LOGIN if is_login else "",
            )
    controller = text_at(root, "controller_group")
    for worker in _workers(root):
        if controller is not None and worker.known and worker.value == controller.value:
            yield problem(
                worker, f"{worker.value!r} is both the controller and a worker", "give the workers another group"
            )
    yield from _lustre(root)


def _lustre(root: Node) -> Iterator[Problem]:
    name, mount = text_at(root, "fsx_dns_name"), text_at(root, "fsx_mountname")
    stated = [value for value in (name, mount) if value is not None and value.value]
    if len(stated) == 1:
        other = "fsx_mountname" if stated[0] is name else "fsx_dns_name"
        yield problem(stated[0], f"a Lustre file system needs {other} too", "write both, or neither")
        return
    if name is not None and name.known and name.value and not _may_be_named(name.value):
        yield problem(
            name, f"{name.value!r} is not the DNS name of a Lustre file system",
            "write fs-….fsx.<region>.amazonaws.com",
            level=None if _NO_HOST.fullmatch(name.value) else "info",  # an address can be mounted too
        )  # fmt: skip
    elif name is not None and mount is not None and mount.known and mount.value.startswith("fs-"):
        yield problem(
            mount, "this is the id of a file system, not its mount name", "write its mount name, such as fzbvxbev"
        )


def _may_be_named(text: str) -> bool:
    """Whether a text is the name of a file system, or one whose id is hidden."""
    return _LUSTRE_NAME.fullmatch(text) is not None or is_masked(text) or re.search(r"\.fsx\.[^@/]*$", text) is not None


def _controllers(file: File, provisioning: File) -> Iterator[Problem]:
    """Several controllers need a database and a shared directory, which the provisioning parameters then describe."""
    controller = text_at(provisioning.nodes[0], "controller_group")
    for _, queue in file.queues:
        name, count = known(queue.name) or "", queue.max_count
        is_controller = (controller is not None and name == controller.value) or name.startswith("controller")
        if is_controller and count is not None and count.known and count.value > 1 and not _is_shared(provisioning):
            yield problem(
                count,
                f"{name}: {count.value} controllers, and nothing in provisioning_parameters.json sets up more than one",
                "write 1, or describe the database and state of several controllers in slurm_configurations there",
                why=reasons.SEPARATE_CONTROLLERS,
            )


def _is_shared(provisioning: File) -> bool:
    return re.search(r"slurm_configurations|slurmdbd|multi.?head", provisioning.text, re.IGNORECASE) is not None


def _unused(file: File, provisioning: Node) -> Iterator[Problem]:
    used = {value.value for value in _named(provisioning)}
    unknown = any(not value.known for value in _named(provisioning))
    for _, queue in file.queues:
        if queue.name is not None and queue.name.known and queue.name.value not in used and not unknown:
            yield problem(
                queue.name,
                f"provisioning_parameters.json has no group {queue.name.value!r}: its nodes join no partition",
                "name it there as controller, login or worker group",
                why="the lifecycle scripts configure Slurm from these parameters alone.",
                level="warning",
            )
