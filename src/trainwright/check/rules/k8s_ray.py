"""K8S: a Ray cluster: ports of its head, of which `ray start` refuses two that are equal, bounds of its worker groups,
and versions of its images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Value
from trainwright.check.readers.values import int_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

# Parameters of `ray start --head` that name a port, with their default; 0 is a port that Ray chooses.
_PORTS = {
    "port": 6379, "ray-client-server-port": 10001, "dashboard-port": 8265, "dashboard-agent-listen-port": 52365,
    "object-manager-port": 0, "node-manager-port": 0, "metrics-export-port": 0, "dashboard-agent-grpc-port": 0,
    "runtime-env-agent-port": 0,
}  # fmt: skip
_IMAGE = re.compile(
    r"(?:[\w.-]+/)*rayproject/ray(?:-ml|-llm)?:(?P<ray>\d+\.\d+\.\d+)(?:-py(?P<python>\d+))?(?:-[\w-]+)?"
)
_OF_WORKERS = ("min-worker-port", "max-worker-port", "worker-port-list")
_WORKERS = range(10002, 20000)  # where none of these is given


def head_ports(cluster: Node) -> Iterator[Problem]:
    """Ports of the head that two parts of Ray would use."""
    params = cluster.get("headGroupSpec", "rayStartParams")
    if params is None or not params.is_map:
        return
    users = {number: name for name, number in _PORTS.items() if number and params.get(name) is None}
    stated = [(name, port) for name in _PORTS if (port := int_at(params, name)) is not None and port.known]
    among: list[tuple[str, Value[int]]] = []
    for name, port in stated:
        if port.value in users:
            yield _refused([(name, port)], f"{users[port.value]} ({port.value})")
        elif port.value in _WORKERS and not any(params.get(key) is not None for key in _OF_WORKERS):
            among.append((name, port))
        elif port.value:
            users[port.value] = name
    if among:
        yield _refused(among, "the workers' ports (10002 to 19999)")


def _refused(ports: list[tuple[str, Value[int]]], other: str) -> Problem:
    name, port = ports[0]
    more = "".join(f" and {another} {number.value}" for another, number in ports[1:])
    return problem(
        port,
        f"{name} is {port.value}{more}, as {other}: ray start refuses to use a port twice, and the head never starts",
        "leave it out (6379), and give clients the port 10001" if name == "port" else "choose another port",
        why="the head's pod restarts for ever, and the workers wait for it with their GPUs.",
    )


def replica_bounds(workers: list[Node]) -> Iterator[Problem]:
    for worker in workers:
        least, most = int_at(worker, "minReplicas"), int_at(worker, "maxReplicas")
        if least is not None and most is not None and least.known and most.known and least.value > most.value:
            yield problem(
                least,
                f"minReplicas is {least.value} and maxReplicas {most.value}: both cannot hold",
                f"write maxReplicas: {least.value} or more",
                level="info",  # its schema takes both; what KubeRay makes of them is its version's choice
                why="the group has fewer workers than its minimum, or none.",
            )


def versions_of_ray(cluster: Node, workers: list[Node]) -> Iterator[Problem]:
    """Images of Ray's own project, whose tags say which Ray and which Python they hold."""
    head = _image(cluster.get("headGroupSpec"))
    first = _IMAGE.fullmatch(head.value) if head is not None and head.known else None
    for image in (_image(worker) for worker in workers) if first is not None else ():
        match = _IMAGE.fullmatch(image.value) if image is not None and image.known else None
        if image is None or match is None or first is None:
            continue
        for part, name in (("ray", "Ray"), ("python", "Python")):
            if first[part] and match[part] and first[part] != match[part]:
                yield problem(
                    image,
                    f"the workers have {name} {_shown(match[part])} and the head {_shown(first[part])}: Ray refuses "
                    "them",
                    "use one version in all images",
                    why="a node of another version ends with `Version mismatch`, and its pod restarts for ever.",
                )
                break


def _shown(version: str) -> str:
    """310 of a tag as 3.10."""
    return version if "." in version else f"{version[0]}.{version[1:]}"


def _image(group: Node | None) -> Value[str] | None:
    """The image of a group's first container, which runs Ray."""
    return text_at(group, "template", "spec", "containers", 0, "image")
