"""A cluster at one moment, from AWS alone: stacks, machines by queue and state, file systems and their links,
reservations, and what it has cost since it was made. A platform's own reader says which machines are its nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from trainwright.aws.cloudformation import CLUSTER_TAG, Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.session import Account, AwsRefused, aws_errors
from trainwright.catalog.prices import price
from trainwright.platforms.apply.left import costs
from trainwright.platforms.apply.remove import SHARED, kind_of
from trainwright.platforms.base import NodeStatus, QueueStatus

PAGE = 1000  # instances an answer of EC2 may hold
LIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
SECONDS_PER_HOUR = 3600
Machine = dict[str, Any]  # an instance in EC2's words


@dataclass(frozen=True)
class StackState:
    stack: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class FileSystemState:
    id: str
    kind: str
    state: str
    capacity_gib: int
    links: tuple[str, ...] = ()  # folder, bucket and life cycle of each


@dataclass(frozen=True)
class ReservationState:
    id: str
    state: str
    total: int
    used: int


@dataclass(frozen=True)
class SchedulerState:
    """The nodes as the scheduler sees them; `unknown`: why it could not be asked."""

    nodes: tuple[NodeStatus, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class AwsCluster:
    """Everything `status` shows."""

    name: str
    platform: str
    region: str
    state: str
    created: datetime | None
    stacks: tuple[StackState, ...]
    head: NodeStatus | None = None
    queues: tuple[QueueStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    file_systems: tuple[FileSystemState, ...] = ()
    reservations: tuple[ReservationState, ...] = ()
    scheduler: SchedulerState | None = None  # None: a platform without one of its own
    usd_hour: float = 0.0
    usd_since_start: float = 0.0
    problems: tuple[str, ...] = field(default=())


def clusters(account: Account) -> list[str]:
    """The names of all clusters of ours in the region, also of those of which only a part is left."""
    return sorted({stack.tags[CLUSTER_TAG] for stack in StackApi(account).of_cluster()})


@dataclass
class StatusReader(ABC):
    """Reads one cluster. `machines`, `queue_of`, `queues` and the hooks with a default are the platform's part."""

    account: Account
    name: str
    patience: float = 1.5  # seconds that the scheduler gets to answer; 0: it is not asked
    platform: ClassVar[str] = ""

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        """Key -> stack of what only this platform makes, out of all stacks of the cluster by their name."""
        return {}

    @abstractmethod
    def machines(self) -> list[Machine]:
        """The cluster's machines, in EC2's words."""

    @abstractmethod
    def queue_of(self, machine: Machine) -> str: ...

    @abstractmethod
    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]: ...

    def is_head(self, machine: Machine) -> bool:
        return False

    def reservation_ids(self, own: Mapping[str, Stack]) -> list[str]:
        return []

    def ask_scheduler(self, head: Machine | None) -> Callable[[], SchedulerState | None]:
        """Ask the scheduler about its nodes and return at once; what is returned waits for the answer."""
        return lambda: None

    def problems(self, own: Mapping[str, Stack]) -> tuple[str, ...]:
        """What is broken beside the stacks."""
        return ()

    def costs(self, own: Mapping[str, Stack]) -> dict[str, float]:
        """Key of a stack of the platform's own -> USD per hour, beside machines."""
        return {}

    def read(self) -> AwsCluster | None:
        """The cluster, or None where nothing of it is in the region."""
        stacks = StackApi(self.account).of_cluster(self.name)
        if not stacks:
            return None
        fsx, now = FsxApi(self.account), datetime.now(UTC)
        own = self.own({stack.name: stack for stack in stacks})
        keyed = {s.name.removeprefix(f"{self.name}-"): s for s in stacks if s.name.startswith(f"{self.name}-")}
        shared = {key: stack for key, stack in keyed.items() if kind_of(key) in SHARED}
        every = {**shared, **own}
        machines = self.machines()
        head = next((m for m in machines if self.is_head(m)), None)
        answer = self.ask_scheduler(head) if self.patience else lambda: None
        prices = {**dict(costs(shared, fsx)), **self.costs(own)}
        running = [(self._usd(m), m["LaunchTime"]) for m in machines if m["State"]["Name"] == "running"]
        spent = sum(usd * _hours(every[key].created, now) for key, usd in prices.items())
        spent += sum(usd * _hours(start, now) for usd, start in running)
        nodes = tuple(self._node(m) for m in machines if not self.is_head(m))
        broken = tuple(f"stack {s.name} is {s.status}: {s.reason}" for s in stacks if "FAILED" in s.status)
        return AwsCluster(
            name=self.name,
            platform=self.platform,
            region=self.account.region,
            state=_state(own, every.values()),
            created=min(stack.created for stack in stacks),
            stacks=tuple(StackState(s.name, s.status, s.reason) for s in every.values()),
            head=next((self._node(m) for m in machines if self.is_head(m)), None),
            queues=self.queues(own, nodes),
            nodes=nodes,
            file_systems=_file_systems(shared, fsx),
            reservations=_reservations(self.reservation_ids(own), self.account),
            scheduler=answer(),
            usd_hour=sum(prices.values()) + sum(usd for usd, _ in running),
            usd_since_start=spent,
            problems=(*broken, *self.problems(own)),
        )

    def _node(self, machine: Machine) -> NodeStatus:
        reason = machine.get("StateReason", {}).get("Message", "")
        address = machine.get("PublicIpAddress") or machine.get("PrivateIpAddress", "")
        return NodeStatus(machine["InstanceId"], self.queue_of(machine), machine["State"]["Name"], reason, address)

    def _usd(self, machine: Machine) -> float:
        kind = "spot" if machine.get("InstanceLifecycle") == "spot" else "on-demand"
        offer = price(machine["InstanceType"], self.account.region, kind)
        return offer.usd_hour if offer else 0.0


def tagged_machines(account: Account, tag: str, values: Sequence[str]) -> list[Machine]:
    """The machines that are not terminated and have one of these values as that tag."""
    filters = [{"Name": f"tag:{tag}", "Values": values}, {"Name": "instance-state-name", "Values": LIVE}]
    with aws_errors("instances"):
        pages = account.client("ec2").get_paginator("describe_instances")
        rows = pages.paginate(Filters=filters, PaginationConfig={"PageSize": PAGE})
        return [machine for page in rows for group in page["Reservations"] for machine in group["Instances"]]


def tag_of(machine: Machine, key: str) -> str:
    return next((tag["Value"] for tag in machine.get("Tags", ()) if tag["Key"] == key), "")


def states_by_queue(nodes: Iterable[NodeStatus]) -> dict[str, dict[str, int]]:
    """Queue -> state -> number of its nodes."""
    states: dict[str, Counter[str]] = {}
    for node in nodes:
        states.setdefault(node.queue, Counter())[node.state] += 1
    return {queue: dict(counts) for queue, counts in states.items()}


def _state(own: Mapping[str, Stack], every: Iterable[Stack]) -> str:
    stacks = list(every)
    if any("FAILED" in stack.status or "ROLLBACK" in stack.status for stack in stacks):
        return "broken"
    if any(stack.status == "DELETE_IN_PROGRESS" for stack in stacks):
        return "being removed"
    if any(stack.busy for stack in stacks):
        return "being made"
    return "running" if own else "storage only"


def _file_systems(stacks: Mapping[str, Stack], fsx: FsxApi) -> tuple[FileSystemState, ...]:
    rows = []
    for stack in stacks.values():
        id = stack.outputs.get("FileSystemId")
        row = fsx.find(id) if id else None
        if row is None:
            continue
        links = fsx.links(row.id) if row.kind == "LUSTRE" else []
        words = tuple(f"{link.path} <-> {link.bucket} {link.state}" for link in links)
        rows.append(FileSystemState(row.id, row.kind.lower(), row.state, row.capacity_gib, words))
    return tuple(rows)


def _reservations(ids: Sequence[str], account: Account) -> tuple[ReservationState, ...]:
    if not ids:
        return ()
    try:
        with aws_errors("reservations"):
            rows = account.client("ec2").describe_capacity_reservations(CapacityReservationIds=list(ids))
    except AwsRefused:
        return tuple(ReservationState(id, "unknown", 0, 0) for id in ids)
    return tuple(
        ReservationState(
            row["CapacityReservationId"],
            row["State"],
            row["TotalInstanceCount"],
            row["TotalInstanceCount"] - row["AvailableInstanceCount"],
        )
        for row in rows["CapacityReservations"]
    )


def _hours(start: datetime, now: datetime) -> float:
    """Never less than nothing: the clocks of two machines differ."""
    return max((now - start).total_seconds(), 0.0) / SECONDS_PER_HOUR
