"""SageMaker HyperPod's two hand-written files -> model: `cluster-config.json` (what CreateCluster takes) and
`provisioning_parameters.json` (what the lifecycle scripts read). Files of one directory are
checked against each other."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.catalog.instances import find_instance
from trainwright.check.model import Cluster, File, Queue, Value
from trainwright.check.readers.values import int_at, text_at, texts_at
from trainwright.spec.source import Node, SourceError, parse, read_text

CONFIG, PROVISIONING = "cluster-config", "provisioning"
_OF_ANSWERS = ("ClusterArn", "ClusterStatus")  # of DescribeCluster, whose output is no request
_NAMES = {CONFIG: ("cluster-config.json",), PROVISIONING: ("provisioning_parameters.json",)}


def part(root: Node) -> str | None:
    """Which of the two files a document is."""
    if root.get("workload_manager") is not None or (root.get("worker_groups") is not None and root.get("version")):
        return PROVISIONING
    if any(root.get(key) is not None for key in _OF_ANSWERS):
        return None
    groups = root.get("InstanceGroups")
    if groups is not None and groups.is_list and (root.get("ClusterName") is not None or _is_group(groups)):
        return CONFIG
    return None


_MASKED = re.compile(
    r"\*{3}|(?i:x{3}|\byour[-_]|\breplace|\bchange|\btodo|\bplaceholder)|<|\{|\bACCOUNT|[A-Z0-9]_[A-Z0-9]|^[A-Z]+$"
)


def is_masked(text: str) -> bool:
    """Whether an id was hidden for publication, or is still to be filled in."""
    return _MASKED.search(text) is not None


def recognise(root: Node) -> bool:
    return part(root) is not None


def read(file: File) -> None:
    """Fill the file's clusters, and read the sibling into `file.siblings`."""
    _fill(file)
    for kind, names in _NAMES.items():
        if not any(part(root) == kind for root in file.nodes):
            sibling = _sibling(file.path, names, kind)
            if sibling is not None:
                file.siblings[kind] = sibling


def _is_group(groups: Node) -> bool:
    return any(element.get("InstanceGroupName") is not None for element in groups.elements())


def _sibling(path: str, names: tuple[str, ...], kind: str) -> File | None:
    for name in names:
        beside = Path(path).with_name(name)
        if path != "<stdin>" and beside.is_file() and str(beside) != path:
            try:
                text = read_text(beside)
                file = File(str(beside), text, "hyperpod", [n for n in parse(text, str(beside)) if n.is_map])
            except SourceError:
                return None  # its own check says what is wrong with it
            _fill(file)
            return file if any(part(root) == kind for root in file.nodes) else None
    return None


def _fill(file: File) -> None:
    file.nodes = [root for root in file.nodes if root.is_map]
    file.clusters = [_cluster(root) for root in file.nodes if part(root) == CONFIG]


def _cluster(root: Node) -> Cluster:
    cluster = Cluster(
        span=root.span,
        platform="hyperpod",
        name=text_at(root, "ClusterName"),
        queues=[_group(root, node) for node in (root.get("InstanceGroups") or root).elements() if node.is_map],
    )
    recovery = text_at(root, "NodeRecovery")
    if recovery is not None:
        cluster.extra["node_recovery"] = recovery
    return cluster


def _group(root: Node, node: Node) -> Queue:
    instance, count = text_at(node, "InstanceType"), int_at(node, "InstanceCount")
    known = find_instance(instance.value) if instance is not None and instance.known else None
    extra = {
        "threads_per_core": int_at(node, "ThreadsPerCore"),
        "lifecycle": text_at(node, "LifeCycleConfig", "SourceS3Uri"),
        "on_create": text_at(node, "LifeCycleConfig", "OnCreate"),
        "role": text_at(node, "ExecutionRole"),
    }
    return Queue(
        span=node.span,
        name=text_at(node, "InstanceGroupName"),
        instances=[instance] if instance is not None else [],
        min_count=count,
        max_count=count,
        # HyperPod enables EFA itself wherever the type has it.
        efa=Value(True, instance.span) if instance is not None and known is not None and known.efa_cards else None,
        subnets=texts_at(root, "VpcConfig", "Subnets"),
        security_groups=texts_at(root, "VpcConfig", "SecurityGroupIds"),
        extra={key: value for key, value in extra.items() if value is not None},
    )
