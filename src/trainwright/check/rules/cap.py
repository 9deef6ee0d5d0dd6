"""CAP: capacity: how many nodes, of which type, from which reservation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.check.finding import Edit
from trainwright.check.model import Cluster, File, Queue, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts, Reservation

# ParallelCluster's defaults for counts.
_DEFAULT_MIN, _DEFAULT_MAX = 0, 10


@rule("CAP001", "error")
def counts_fit_the_capacity(file: File) -> Iterator[Problem]:
    """A queue's node counts must be consistent and fit its capacity.

    The maximum cannot be below the minimum, nor zero in ParallelCluster, and a desired count lies between the two. A
    Capacity Block is bought whole and for a fixed time, so in ParallelCluster its nodes are static: minimum and maximum
    are equal, above zero, and the block's id is named. An instance type must be available in the queue's purchase
    option: not every type has a spot market or Capacity Blocks. A reservation holds on-demand capacity, which spot
    instances do not use (a warning).

    Why: the cluster is refused, or (a block without its id) on-demand nodes are requested and never start, while the
    block is paid in advance: 47.76 USD per hour for each p5.48xlarge.

    Fix: make MaxCount at least MinCount; for a block set both to the block's size and name its id.

    Source: ParallelCluster, ComputeResourceSizeValidator and CapacityTypeValidator; eksctl schema; EC2 user guide,
    Capacity Blocks for ML and On-Demand Capacity Reservations.

    When to ignore: EC2 started to offer the instance type in this purchase option after the catalog's date.
    """
    for cluster, queue in file.queues:
        yield from _order(queue)
        if cluster.platform == "parallelcluster" and known(queue.max_count) == 0 and queue.max_count is not None:
            yield problem(
                queue.max_count, f"{queue.label}: a queue that can never have a node", "write 1 or more", why=_REFUSED
            )
        if known(queue.capacity) == "block" and cluster.platform == "parallelcluster":
            yield from _static(queue)
        yield from _sold_so(queue)
        reserved = queue.reservation or queue.reservation_group
        if known(queue.capacity) == "spot" and reserved is not None and reserved.text:
            yield problem(
                reserved,
                f"{queue.label}: spot instances do not use a reservation, which is paid for anyway",
                "use on-demand capacity, or leave the reservation out",
                level="warning",
                why="the reservation is charged by the hour, used or not, and so are the spot nodes beside it.",
            )
        # An id that stands under a wrong key is CFG005's.
        named = (
            any(queue.reservation is not None for queue in cluster.queues) or "CapacityReservationId" not in file.text
        )
        if known(queue.capacity) == "block" and queue.capacity is not None and not _reserved(queue) and named:
            yield problem(
                queue.capacity,
                f"{queue.label}: a Capacity Block without its id",
                "name the block's reservation id (cr-…)",
                why=_REFUSED if cluster.platform == "parallelcluster" else "",
            )


_REFUSED = "the file is refused when it is applied, and no node of the queue is created or changed."


def _order(queue: Queue) -> Iterator[Problem]:
    low, high, desired = known(queue.min_count), known(queue.max_count), known(queue.extra.get("desired"))
    if queue.max_count is not None and low is not None and high is not None and high < low:
        yield problem(
            queue.max_count,
            f"{queue.label}: the maximum count ({high}) is below the minimum ({low})",
            f"raise it to {max(low, desired or 0)} or more" + _also_desired(low, desired),
            why=_REFUSED,
        )
    elif desired is not None and high is not None and desired > high:
        yield problem(
            queue.extra["desired"],
            f"{queue.label}: the desired count ({desired}) is above the maximum ({high})",
            f"raise the maximum to {desired}, or lower this",
            why=_REFUSED,
        )
    elif desired is not None and low is not None and desired < low:
        yield problem(
            queue.extra["desired"],
            f"{queue.label}: the desired count ({desired}) is below the minimum ({low})",
            f"write {low} or more, or lower the minimum",
            why=_REFUSED,
        )


def _also_desired(low: int, desired: int | None) -> str:
    """The count between the two must not be below the minimum either."""
    return f", and the desired count ({desired}) to {low} or more" if desired is not None and desired < low else ""


def _static(queue: Queue) -> Iterator[Problem]:
    low = known(queue.min_count) if queue.min_count is not None else _DEFAULT_MIN
    high = known(queue.max_count) if queue.max_count is not None else _DEFAULT_MAX
    at = queue.max_count or queue.min_count or queue.capacity
    if low is None or high is None or at is None or high < low:
        return
    if low != high:
        yield problem(
            at,
            f"{queue.label}: a Capacity Block needs equal counts, not {low} to {high}",
            "set both to the block's size",
            why=_REFUSED,
        )


_USAGE = {"spot": "spot", "block": "capacity-block"}
_WAYS = {"spot": "on the spot market", "block": "in Capacity Blocks"}


def _sold_so(queue: Queue) -> Iterator[Problem]:
    way = known(queue.capacity)
    for value, type_ in machines(queue):
        if way is not None and queue.capacity is not None and way in _USAGE and _USAGE[way] not in type_.capacity:
            yield problem(
                queue.capacity if queue.capacity.text else value,
                f"{queue.label}: {type_.name} is not available {_WAYS[way]}",
                "use on-demand capacity, or another instance type",
                why="EC2 rejects every request for such a node: the queue never gets one.",
            )


def _reserved(queue: Queue) -> bool:
    return queue.reservation is not None or queue.reservation_group is not None


@rule("CAP002", "error")
def one_type_for_a_reservation(file: File) -> Iterator[Problem]:
    """A reservation id goes with one instance type, outside an `Instances` list.

    A capacity reservation holds one instance type. ParallelCluster accepts its id only beside `InstanceType`, not
    beside the `Instances` list; an eksctl node group that names a reservation and several types can only ever start one
    of them.

    Why: ParallelCluster refuses the cluster; elsewhere nodes of the other types fail to start.

    Fix: write `InstanceType: <the reservation's type>` in place of the list.

    Source: ParallelCluster, CapacityReservationValidator; EC2 user guide, On-Demand Capacity Reservations.

    When to ignore: never in ParallelCluster; elsewhere when the other types are meant to start outside the reservation.
    """
    for cluster, queue in file.queues:
        if queue.reservation is None or not queue.reservation.text:  # a launch template or variable may name one
            continue
        types = {value.value for value in queue.instances if value.known}
        # A choice (`!If [..., !Ref AWS::NoValue]`) reads as an empty text: only one of the two may be set.
        if queue.reservation_group is not None and queue.reservation.value and queue.reservation_group.value:
            yield problem(
                queue.reservation_group,
                f"{queue.label}: a reservation and a group of reservations",
                "keep one of the two",
            )
        if queue.instances_listed is not None:
            type_ = types.pop() if len(types) == 1 else "<the reservation's type>"
            yield problem(
                queue.instances_listed.key or queue.instances_listed,
                f"{queue.label}: a reservation id cannot be used with an `Instances` list",
                f"write `InstanceType: {type_}` in place of the list"
                + (", and keep the one subnet of the reservation's zone" if len(queue.subnets) > 1 else ""),
            )
        elif cluster.platform != "parallelcluster" and len(types) > 1:
            yield problem(
                queue.instances[1],
                f"{queue.label}: one reservation holds one instance type, but {len(types)} are named",
                "keep the type of the reservation",
            )


@rule("CAP003", "error", needs="aws")
def reservation_matches_the_queue(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """A queue must fit the reservation it names.

    The reservation exists and is active, holds the queue's instance type, is in the zone of its subnet, is large enough
    for every queue that uses it, and is a Capacity Block exactly where the queue says so.

    Why: otherwise the nodes never start, or start on demand beside a reservation that is paid for: 55 USD per hour more
    for each p5.48xlarge (us-east-2, August 2026).

    Fix: name the reservation that fits, or change type, subnet or count.

    Source: ParallelCluster, CapacityReservationValidator and CapacityReservationSizeValidator.

    When to ignore: the reservation will be changed before the cluster is created.
    """
    for cluster, queue in file.queues:
        id = known(queue.reservation)
        if id is None or queue.reservation is None:
            continue
        reservation = aws.reservation(id)
        if reservation is None:
            yield problem(
                queue.reservation,
                f"{queue.label}: reservation {id} does not exist in {aws.region}",
                "name one that exists",
            )
            continue
        yield from _fits(cluster, queue, queue.reservation, reservation, aws)
    yield from _sizes(file, aws)


def _fits(cluster: Cluster, queue: Queue, at: Value[str], reservation: Reservation, aws: AwsFacts) -> Iterator[Problem]:
    if reservation.state not in ("active", "scheduled", "pending", "payment-pending", "assessing", "delayed"):
        yield problem(
            at, f"{queue.label}: reservation {reservation.id} is {reservation.state}", "name an active reservation"
        )
    for instance in queue.instances:
        if instance.known and instance.value.removeprefix("ml.") != reservation.instance:
            yield problem(
                instance,
                f"{queue.label}: the reservation holds {reservation.instance}, not {instance.value}",
                f"write {reservation.instance}, or name another reservation",
            )
    for subnet in queue.subnets:
        there = aws.subnet(subnet.value) if subnet.known else None
        if there is not None and there.zone != reservation.zone:
            yield problem(
                subnet,
                f"{queue.label}: subnet {subnet.value} is in {there.zone}, the reservation in {reservation.zone}",
                f"use a subnet in {reservation.zone}",
            )
    for zone in queue.zones:
        if zone.known and zone.value not in (reservation.zone, reservation.zone_id):
            yield problem(
                zone,
                f"{queue.label}: the zone is {zone.value}, the reservation is in {reservation.zone}",
                f"write {reservation.zone}",
            )
    says_block = known(queue.capacity) == "block"
    if queue.capacity is not None and not queue.capacity.known:
        return
    if reservation.is_block != says_block and cluster.platform in ("parallelcluster", "eks"):
        is_, says = ("is", "does not say so") if reservation.is_block else ("is not", "says it is")
        yield problem(
            queue.capacity if queue.capacity is not None and queue.capacity.text else at,
            f"{queue.label}: reservation {reservation.id} {is_} a Capacity Block, and the queue {says}",
            "make the capacity type agree with the reservation",
        )


def _sizes(file: File, aws: AwsFacts) -> Iterator[Problem]:
    wanted: dict[str, int] = {}
    for _, queue in file.queues:
        id, high = known(queue.reservation), known(queue.max_count)
        if id is None or high is None or queue.max_count is None:
            continue
        before = wanted.get(id, 0)
        wanted[id] = before + high
        reservation = aws.reservation(id)
        if reservation is not None and before <= reservation.count < wanted[id]:
            yield problem(
                queue.max_count,
                f"{queue.label}: {wanted[id]} nodes are requested of reservation {id}, which has {reservation.count}",
                f"request {reservation.count - before} here"
                if reservation.count > before
                else "use another reservation",
            )


@rule("CAP004", "warning")
def no_placement_group_on_reserved_capacity(file: File) -> Iterator[Problem]:
    """Reserved capacity should not be put into a new placement group.

    A Capacity Block, and a reservation that AWS delivers, is placed already. A new cluster placement group on top
    requests room that the reservation may not have. A group given by name is not reported: it may be the one that the
    reservation was made in.

    Why: EC2 answers with insufficient capacity although the reservation is empty, and static nodes are retried forever.

    Fix: `PlacementGroup: {Enabled: false}`, or the name of the group the reservation was made in.

    Source: ParallelCluster, PlacementGroupCapacityTypeValidator and PlacementGroupCapacityReservationValidator;
    awslabs/awsome-distributed-ai issue 353.

    When to ignore: the reservation was tried with this placement group and its nodes start.
    """
    for _, queue in file.queues:
        if not known(queue.placement) or queue.placement is None:
            continue
        if known(queue.capacity) == "block":
            edit = Edit(queue.placement.span, "false") if queue.placement.text == "true" else None
            yield problem(
                queue.placement,
                f"{queue.label}: a placement group on a Capacity Block can leave the block unusable",
                "disable the placement group: a block is placed already",
                edit=edit,
            )
        elif _reserved(queue) and queue.placement_name is None:
            yield problem(
                queue.placement,
                f"{queue.label}: a new placement group on reserved capacity can leave the reservation unusable",
                "disable it, or name the group that the reservation was made in",
            )


@rule("CAP004", "warning", needs="aws")
def placement_group_of_the_reservation(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """A named placement group must be the one the reservation was made in.

    With AWS access the placement group of the reservation is looked up: a queue that names another one, or names one
    for a reservation that has none, requests room outside the reservation.

    Why: EC2 answers with insufficient capacity although the reservation is empty.

    Fix: name the reservation's placement group, or none.

    Source: ParallelCluster, PlacementGroupCapacityReservationValidator.

    When to ignore: the reservation will be moved into this group.
    """
    for _, queue in file.queues:
        id, name = known(queue.reservation), known(queue.placement_name)
        reservation = aws.reservation(id) if id is not None and name is not None else None
        if reservation is None or queue.placement_name is None or name == reservation.placement_group:
            continue
        owned = (
            f"was made in group {reservation.placement_group}"
            if reservation.placement_group
            else "was made in no group"
        )
        yield problem(
            queue.placement_name,
            f"{queue.label}: reservation {id} {owned}, not in {name}",
            f"name {reservation.placement_group}" if reservation.placement_group else "turn the placement group off",
        )
