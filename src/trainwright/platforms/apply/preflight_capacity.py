"""Before `up`: whether the capacity reservations of the queues, alone or in groups, are there, of the right type, in
the zone of the nodes, large enough, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.aws.session import Account, aws_errors
from trainwright.platforms.apply.answers import Answer, Place
from trainwright.spec.model import Queue, Spec

SOON = timedelta(hours=24)
OVER = ("expired", "cancelled", "failed", "payment-failed")
Row = dict[str, Any]


def reservations(account: Account, spec: Spec, place: Place) -> Iterator[Answer]:
    """An answer for each reservation, and for the sum of those in a group."""
    for queue in spec.queues:
        rows = [reservation(account, id) for id in reservation_ids(account, queue)]
        for row in rows:
            yield _judged(row, queue, place)
        if queue.capacity.kind == "group":
            yield from _sum(rows, queue)


def reservation_ids(account: Account, queue: Queue) -> tuple[str, ...]:
    """The reservations of a queue: those that it names, or the members of the group that it names."""
    capacity = queue.capacity
    if capacity.reservations:
        return capacity.reservations
    if capacity.kind == "group" and capacity.id:
        with aws_errors(f"reservation group {capacity.id}"):
            pages = account.client("resource-groups").get_paginator("list_group_resources").paginate(Group=capacity.id)
            arns = [row["Identifier"]["ResourceArn"] for page in pages for row in page["Resources"]]
        return tuple(arn.rpartition("/")[2] for arn in arns if ":capacity-reservation/" in arn)
    return (capacity.id,) if capacity.kind in ("reservation", "block") and capacity.id else ()


def reservation(account: Account, id: str) -> Row:
    """One reservation as EC2 shows it."""
    with aws_errors(f"reservation {id}"):
        rows = account.client("ec2").describe_capacity_reservations(CapacityReservationIds=[id])
    return dict(rows["CapacityReservations"][0])


def _judged(row: Row, queue: Queue, place: Place) -> Answer:
    id, state, now = row["CapacityReservationId"], row["State"], datetime.now(UTC)
    start, end = row.get("StartDate"), row.get("EndDate")
    if state in OVER:
        return Answer("reservation", "fail", f"{id} of queue {queue.name} is {state}")
    if wrong := _misplaced(row, queue, place):
        return Answer("reservation", "fail", wrong)
    if state != "active":
        when = f", it starts at {start:%Y-%m-%d %H:%M} UTC" if start else ""
        return Answer("reservation", "warn", f"{id} is {state}{when}")
    if end is not None and end - now < SOON:
        return Answer("reservation", "warn", f"{id} ends at {end:%Y-%m-%d %H:%M} UTC, in less than a day")
    words = f"{row['TotalInstanceCount']} x {row['InstanceType']}, {row['AvailableInstanceCount']} free"
    return Answer("reservation", "pass", f"{id}: {words}")


def _misplaced(row: Row, queue: Queue, place: Place) -> str:
    """Why nodes of the queue could not start in the reservation; empty where they can."""
    id, name = row["CapacityReservationId"], row.get("AvailabilityZone", "")
    if row["InstanceType"] != queue.instance:
        return f"{id} of queue {queue.name} holds {row['InstanceType']}, not {queue.instance}"
    zone = row.get("AvailabilityZoneId") or next((i for i, n in place.known.items() if n == name), "")
    if place.known and zone and zone != place.id:
        nodes = place.id or "the first zone of the region"
        return f"{id} of queue {queue.name} is in {zone}, and its nodes would be in {nodes}: write `zone: {zone}`"
    return ""


def _sum(rows: list[Row], queue: Queue) -> Iterator[Answer]:
    if not rows:
        yield Answer("reservation", "fail", f"the group of queue {queue.name} holds no reservation")
        return
    total = sum(row["TotalInstanceCount"] for row in rows if row["State"] not in OVER)
    if queue.count is not None and total < queue.count.max:
        words = f"the group of queue {queue.name} holds {total} instances, and the queue may have {queue.count.max}"
        yield Answer("reservation", "warn", f"{words}: the others start on demand, where AWS has room")
