"""A ParallelCluster at one moment, from AWS alone: stacks, head node, nodes by queue and state, file systems and their
links, reservations, and what it has cost since it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from trainwright.aws.cloudformation import CLUSTER_TAG, Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account, AwsRefused, aws_errors
from trainwright.catalog.prices import price
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.parallelcluster.apply.cluster_steps import deployed_config
from trainwright.platforms.parallelcluster.apply.left import costs
from trainwright.platforms.parallelcluster.apply.remove import kind_of

PAGE = 1000  # instances an answer of EC2 may hold
LIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
SECONDS_PER_HOUR = 3600


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
class AwsCluster:
    """Everything `status` shows."""

    name: str
    region: str
    state: str
    created: datetime | None
    stacks: tuple[StackState, ...]
    head: NodeStatus | None = None
    queues: tuple[QueueStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    file_systems: tuple[FileSystemState, ...] = ()
    reservations: tuple[ReservationState, ...] = ()
    usd_hour: float = 0.0
    usd_since_start: float = 0.0
    problems: tuple[str, ...] = field(default=())


def clusters(account: Account) -> list[str]:
    """The names of all clusters of ours in the region, also of those of which only a part is left."""
    return sorted({stack.tags[CLUSTER_TAG] for stack in StackApi(account).of_cluster()})


def status(account: Account, name: str) -> AwsCluster | None:
    """The cluster, or None where nothing of it is in the region."""
    stacks = StackApi(account).of_cluster(name)
    if not stacks:
        return None
    fsx = FsxApi(account)
    cluster = next((stack for stack in stacks if stack.name == name), None)
    keyed = {s.name.removeprefix(f"{name}-"): s for s in stacks if s.name.startswith(f"{name}-")}
    ours = {key: stack for key, stack in keyed.items() if kind_of(key) in _KINDS}
    machines = _instances(account, name)
    config = _config(cluster, account)
    prices = dict(costs(ours, fsx))
    machine_usd = [(_usd(m, account.region), m["LaunchTime"]) for m in machines if m["State"]["Name"] == "running"]
    now = datetime.now(UTC)
    spent = sum(usd * _hours(ours[key].created, now) for key, usd in prices.items())
    spent += sum(usd * _hours(start, now) for usd, start in machine_usd)
    nodes = tuple(_node(m) for m in machines if _tag(m, "parallelcluster:node-type") != "HeadNode")
    head = next((_node(m) for m in machines if _tag(m, "parallelcluster:node-type") == "HeadNode"), None)
    return AwsCluster(
        name=name,
        region=account.region,
        state=_state(cluster, ours.values()),
        created=min(stack.created for stack in stacks),
        stacks=tuple(StackState(s.name, s.status, s.reason) for s in (*ours.values(), *([cluster] if cluster else []))),
        head=head,
        queues=_queues(config, nodes),
        nodes=nodes,
        file_systems=_file_systems(ours, fsx),
        reservations=_reservations(config, account),
        usd_hour=sum(prices.values()) + sum(usd for usd, _ in machine_usd),
        usd_since_start=spent,
        problems=tuple(f"stack {s.name} is {s.status}: {s.reason}" for s in stacks if "FAILED" in s.status),
    )


_KINDS = ("network", "bucket", "lustre", "openzfs", "accounting", "capacity")


def _state(cluster: Stack | None, around: Iterable[Stack]) -> str:
    every = [*around, *([cluster] if cluster else [])]
    if any("FAILED" in stack.status or "ROLLBACK" in stack.status for stack in every):
        return "broken"
    if any(stack.status == "DELETE_IN_PROGRESS" for stack in every):
        return "being removed"
    if any(stack.busy for stack in every):
        return "being made"
    return "running" if cluster is not None else "storage only"


def _instances(account: Account, name: str) -> list[dict[str, Any]]:
    filters = [
        {"Name": "tag:parallelcluster:cluster-name", "Values": [name]},
        {"Name": "instance-state-name", "Values": list(LIVE)},
    ]
    with aws_errors("instances"):
        pages = account.client("ec2").get_paginator("describe_instances")
        rows = pages.paginate(Filters=filters, PaginationConfig={"PageSize": PAGE})
        return [machine for page in rows for group in page["Reservations"] for machine in group["Instances"]]


def _config(cluster: Stack | None, account: Account) -> dict[str, Any]:
    text = deployed_config(cluster, BucketApi(account)) if cluster is not None else None
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if text else {}
    return data if isinstance(data, dict) else {}


def _tag(machine: dict[str, Any], key: str) -> str:
    return next((tag["Value"] for tag in machine.get("Tags", ()) if tag["Key"] == key), "")


def _node(machine: dict[str, Any]) -> NodeStatus:
    reason = machine.get("StateReason", {}).get("Message", "")
    queue = _tag(machine, "parallelcluster:queue-name")
    address = machine.get("PublicIpAddress") or machine.get("PrivateIpAddress", "")
    return NodeStatus(machine["InstanceId"], queue, machine["State"]["Name"], reason, address)


def _queues(config: dict[str, Any], nodes: tuple[NodeStatus, ...]) -> tuple[QueueStatus, ...]:
    from trainwright.catalog.instances import find_instance

    states: dict[str, Counter[str]] = {}
    for node in nodes:
        states.setdefault(node.queue, Counter())[node.state] += 1
    queues = []
    for queue in config.get("Scheduling", {}).get("SlurmQueues", []):
        parts = queue["ComputeResources"]
        types = [p.get("InstanceType") or p["Instances"][0]["InstanceType"] for p in parts]
        known = find_instance(types[0])
        queues.append(
            QueueStatus(
                queue["Name"],
                sum(p.get("MinCount", 0) for p in parts),
                sum(p.get("MaxCount", 0) for p in parts),
                known.vcpus if known else 0,
                known.accelerator_count if known else 0,
                dict(states.get(queue["Name"], {})),
            )
        )
    return tuple(queues)


def _file_systems(stacks: dict[str, Stack], fsx: FsxApi) -> tuple[FileSystemState, ...]:
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


def _reservations(config: dict[str, Any], account: Account) -> tuple[ReservationState, ...]:
    parts = [p for q in config.get("Scheduling", {}).get("SlurmQueues", []) for p in q["ComputeResources"]]
    ids = sorted(
        {
            t["CapacityReservationId"]
            for p in parts
            if (t := p.get("CapacityReservationTarget", {})) and "CapacityReservationId" in t
        }
    )
    if not ids:
        return ()
    try:
        with aws_errors("reservations"):
            rows = account.client("ec2").describe_capacity_reservations(CapacityReservationIds=ids)
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


def _usd(machine: dict[str, Any], region: str) -> float:
    kind = "spot" if machine.get("InstanceLifecycle") == "spot" else "on-demand"
    offer = price(machine["InstanceType"], region, kind)
    return offer.usd_hour if offer else 0.0


def _hours(start: datetime, now: datetime) -> float:
    """Never less than nothing: the clocks of two machines differ."""
    return max((now - start).total_seconds(), 0.0) / SECONDS_PER_HOUR
