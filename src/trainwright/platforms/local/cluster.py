"""What a local cluster is made of: queues and their nodes, as plain data that the rest of this folder reads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.errors import UserError

NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
MOST_NODES = 1000


@dataclass(frozen=True)
class LocalQueue:
    """A Slurm partition: `nodes` machines at most, of which `least` are always up and the rest come on demand."""

    name: str
    nodes: int = 1
    cpus: int = 1
    gpus: int = 0
    gpu_type: str = ""
    least: int | None = None

    def __post_init__(self) -> None:
        _check_name(self.name, "queue")
        if self.nodes < 1 or self.cpus < 1 or self.gpus < 0:
            raise UserError(f"queue {self.name!r} needs at least one node and one cpu", fix="nodes: 1, cpus: 1")
        if not 0 <= self.static <= self.nodes:
            raise UserError(
                f"queue {self.name!r} keeps {self.static} nodes of {self.nodes}", fix="make min no larger than max"
            )

    @property
    def static(self) -> int:
        """How many nodes stay up whether or not there is work."""
        return self.nodes if self.least is None else self.least


@dataclass(frozen=True)
class LocalNode:
    """One machine of the cluster: an address in the loopback range, and a port where nodes share one network."""

    name: str
    queue: LocalQueue
    index: int
    elastic: bool

    @property
    def address(self) -> str:
        """127.77.x.y: still a loopback address, so nothing a job sends can leave this machine."""
        return f"127.77.{self.index // 250}.{self.index % 250 + 1}"


@dataclass(frozen=True)
class LocalCluster:
    """A name and its queues. `database` adds slurmdbd with MariaDB, for accounts, QoS and `sacct`."""

    name: str
    queues: tuple[LocalQueue, ...] = ()
    database: bool = False
    mounts: tuple[tuple[str, str], ...] = ()  # (folder of this machine, where the nodes see it)
    settings: tuple[tuple[str, str], ...] = ()  # further lines of slurm.conf
    monitoring: dict[str, Any] | None = None  # the spec's own settings of it

    def __post_init__(self) -> None:
        _check_name(self.name, "cluster")
        if not self.queues:
            raise UserError(f"cluster {self.name!r} has no queue", fix="queues: [{name: train, nodes: 4, cpus: 1}]")
        names = [queue.name for queue in self.queues]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UserError(f"cluster {self.name!r} has two queues named {min(twice)!r}", fix="rename one of them")
        if sum(queue.nodes for queue in self.queues) > MOST_NODES:
            raise UserError(f"cluster {self.name!r} has more than {MOST_NODES} nodes", fix="ask for fewer nodes")

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """Every node, static and elastic, in the order of the queues."""
        made: list[LocalNode] = []
        for queue in self.queues:
            for number in range(1, queue.nodes + 1):
                made.append(LocalNode(f"{queue.name}-{number}", queue, len(made), elastic=number > queue.static))
        return tuple(made)

    @property
    def elastic(self) -> bool:
        return any(node.elastic for node in self.nodes)

    def node(self, name: str) -> LocalNode:
        for node in self.nodes:
            if node.name == name:
                return node
        raise UserError(f"cluster {self.name!r} has no node {name!r}", fix=f"one of {hostlist(self.nodes)}")


def hostlist(nodes: Sequence[LocalNode]) -> str:
    """`train-[1-4],burst-1`: names as Slurm folds them."""
    numbers: dict[str, list[int]] = {}
    for node in nodes:
        stem, _, number = node.name.rpartition("-")
        numbers.setdefault(stem, []).append(int(number))
    return ",".join(_fold(stem, sorted(group)) for stem, group in numbers.items())


def _fold(stem: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{stem}-{numbers[0]}"
    return f"{stem}-[{numbers[0]}-{numbers[-1]}]"


def machine_memory_mb() -> int:
    """What each node may claim: the machine's memory, since local nodes share it."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20


def _check_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be the name of a {what}",
            fix="use small letters, digits and dashes, at most 31, a letter first",
        )
