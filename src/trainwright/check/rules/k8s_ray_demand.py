"""K8S: the GPUs that a Ray job asks for, and those of its cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, Value
from trainwright.check.readers.kubernetes_pods import maps_at
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import kind_of
from trainwright.check.rules.k8s_kueue import gpus_of
from trainwright.spec.source import Node, Span

_WORKERS = re.compile(r"--num[-_]workers[=\s]+(\d+)(?!\S)")
_ON_GPU = re.compile(r"--use[-_]gpu(?![\w-])(?![=\s]+(?:false|0|no)\b)", re.IGNORECASE)
_SCALING = re.compile(r"ScalingConfig\(([^()]*)\)")
_NUMBER, _TRUE = re.compile(r"\bnum_workers\s*=\s*(\d+)\b"), re.compile(r"\buse_gpu\s*=\s*True\b")
_WAITS = "Ray starts a group of workers when all of them have a place: the job waits, and the GPUs that are there idle."


def ray_demand(file: File, root: Node) -> Iterator[Problem]:
    """A Ray job whose workers need more GPUs than its cluster ever has."""
    cluster = root.get("spec", "rayClusterSpec")
    if kind_of(root) != "RayJob" or cluster is None or not cluster.is_map:
        return
    nodes = _nodes(cluster)
    has = sum(count * gpus for count, gpus in nodes) if nodes is not None else None
    if nodes is None or not has:
        return
    for at, wanted in _wanted(file, root):
        if wanted > has:
            said = (
                f"the job asks for {wanted} workers with a GPU each, and its cluster has {has} GPUs: it waits for ever"
            )
            yield problem(at, said, "add workers to the cluster, or ask for fewer", level="warning", why=_WAITS)
            return
    yield from _entrypoint(root, max(gpus for _, gpus in nodes))


def _entrypoint(root: Node, most: int) -> Iterator[Problem]:
    """The GPUs of the entrypoint itself, which are those of one node."""
    own = int_at(root, "spec", "entrypointNumGpus")
    if own is not None and own.known and own.value > most:
        said = f"the entrypoint needs {own.value} GPUs of one node, and none has more than {most}: it waits for ever"
        yield problem(own, said, f"write {most} or less", level="warning", why=_WAITS)


def _wanted(file: File, root: Node) -> Iterator[tuple[Value[str] | Span, int]]:
    """Workers on GPUs that the entrypoint asks for, or a program in a ConfigMap of the file."""
    entry = text_at(root, "spec", "entrypoint")
    number = _WORKERS.findall(entry.value) if entry is not None else []
    if entry is not None and len(number) == 1 and _ON_GPU.search(entry.value):
        yield entry, int(number[0])
        return
    jobs = sum(kind_of(one) in ("RayJob", "RayCluster", "RayService") for one in file.nodes)
    for data in (one.get("data") for one in file.nodes if kind_of(one) == "ConfigMap" and jobs == 1):
        for node in (child for _, child in data.items()) if data is not None and data.is_map else ():
            calls = _SCALING.findall(node.text) if node.is_scalar else []
            match = _NUMBER.search(calls[0]) if len(calls) == 1 else None
            if match is not None and _TRUE.search(calls[0]) and "resources_per_worker" not in calls[0]:
                yield node.span, int(match[1])


def _nodes(cluster: Node) -> list[tuple[int, int]] | None:
    """How many nodes of how many GPUs the cluster may have; None where the file leaves it open."""
    grows = bool_at(cluster, "enableInTreeAutoscaling")
    if grows is not None and not grows.known:
        return None
    head = cluster.get("headGroupSpec")
    nodes = [(1, _gpus(head))] if head is not None else []
    for group in maps_at(cluster, "workerGroupSpecs"):
        most = int_at(group, "maxReplicas") if grows is not None and grows.value else None
        if grows is not None and grows.value and most is None:
            return None
        counts = [most, int_at(group, "replicas"), int_at(group, "minReplicas")]
        hosts = int_at(group, "numOfHosts")
        if any(count is not None and not count.known for count in (*counts, hosts)):
            return None
        largest = max((count.value for count in counts if count is not None), default=0)
        nodes.append((largest * (hosts.value if hosts is not None else 1), _gpus(group)))
    return (
        [(count, gpus) for count, gpus in nodes if gpus is not None] if all(g is not None for _, g in nodes) else None
    )


def _gpus(group: Node) -> int | None:
    """GPUs of a node of a group, as Ray counts them; None where they are not known."""
    stated = int_at(group, "rayStartParams", "num-gpus")
    if stated is not None:
        return stated.value if stated.known else None
    pod = group.get("template", "spec")
    asks = pod is not None and any("/gpu" in key for node in pod.walk() if node.is_map for key, _ in node.items())
    return gpus_of(pod, first=True) if asks else 0
