"""What `up` asks AWS before it makes anything: who is calling, whether the machines are offered in the zone, quotas,
reservations and their dates, linked buckets. Read-only. The rules of `check --aws` run beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account, AwsRefused, aws_errors
from trainwright.catalog.instances import instance
from trainwright.catalog.regions import zone_kind
from trainwright.spec.model import Queue, Spec

# Service Quotas: vCPUs of running on-demand instances, by the first letters of the type.
QUOTAS = {
    "p": "L-417A185B", "g": "L-DB2E81BA", "vt": "L-DB2E81BA", "trn": "L-2C3B7624", "inf": "L-1945791B",
    "c": "L-1216C47A", "m": "L-1216C47A", "r": "L-1216C47A", "t": "L-1216C47A", "hpc": "L-F7808C92",
}  # fmt: skip
SOON = timedelta(hours=24)


@dataclass(frozen=True)
class Answer:
    """One question and its verdict: pass, warn, fail or skip."""

    question: str
    verdict: str
    words: str


def preflight(account: Account, spec: Spec) -> list[Answer]:
    """Every answer. Where a question may not be asked (no permission), it is skipped and says so."""
    number, who = account.identity()
    answers = [Answer("credentials", "pass", f"account {number}, {who}")]
    for question, ask in (
        ("zone", _zone), ("offering", _offerings), ("quota", _quotas), ("reservation", _reservations),
        ("bucket", _buckets),
    ):  # fmt: skip
        try:
            answers += ask(account, spec)
        except AwsRefused as error:
            if "AccessDenied" not in error.code and error.code != "UnauthorizedOperation":
                raise
            answers.append(Answer(question, "skip", f"not allowed to ask: {error.what}"))
    return answers


def _zone(account: Account, spec: Spec) -> Iterator[Answer]:
    if spec.zone is None or spec.network.private_subnet is not None:
        return
    with aws_errors("zones"):
        rows = account.client("ec2").describe_availability_zones()["AvailabilityZones"]
    names = {row["ZoneId"]: row["ZoneName"] for row in rows}
    pairs = {**names, **{name: id for id, name in names.items()}}
    if spec.zone not in pairs:
        yield Answer("zone", "fail", f"{account.region} has no zone {spec.zone}; it has {', '.join(sorted(names))}")
    else:
        yield Answer("zone", "pass", f"{spec.zone} is {pairs[spec.zone]} in this account")


def _offerings(account: Account, spec: Spec) -> Iterator[Answer]:
    heads = {str(spec.head.instance)} if spec.platform in ("parallelcluster", "hyperpod") else set()
    wanted = {str(queue.instance) for queue in spec.queues} | heads
    kind = {"id": "availability-zone-id", "name": "availability-zone"}.get(zone_kind(spec.zone or "") or "", "region")
    place = spec.zone if kind != "region" and spec.zone else account.region
    filters = [{"Name": "instance-type", "Values": sorted(wanted)}, {"Name": "location", "Values": [place]}]
    with aws_errors("instance type offerings"):
        pages = account.client("ec2").get_paginator("describe_instance_type_offerings")
        rows = [r for page in pages.paginate(LocationType=kind, Filters=filters) for r in page["InstanceTypeOfferings"]]
    offered = {row["InstanceType"] for row in rows}
    for name in sorted(wanted):
        if name in offered:
            yield Answer("offering", "pass", f"{name} is offered in {place}")
        else:
            yield Answer("offering", "fail", f"{name} is not offered in {place}: choose another zone or type")


def _quotas(account: Account, spec: Spec) -> Iterator[Answer]:
    needed: dict[str, int] = {}
    if spec.platform in ("hyperpod", "hyperpod-eks"):
        names = ", ".join(f"ml.{queue.instance} for cluster usage" for queue in spec.queues)
        yield Answer("quota", "skip", f"SageMaker's quotas have no codes that are known here: look at {names}")
        return
    for queue in spec.queues:
        if queue.capacity.kind in ("block", "spot") or queue.count is None or queue.instance is None:
            continue
        code = _quota_code(queue.instance)
        if code:
            needed[code] = needed.get(code, 0) + queue.count.max * instance(queue.instance).vcpus
    quotas = account.client("service-quotas")
    for code, vcpus in needed.items():
        with aws_errors(f"quota {code}"):
            row = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
        enough = float(row["Value"]) >= vcpus
        words = f"{row['QuotaName']}: {row['Value']:,.0f} vCPUs, this cluster may use {vcpus:,}"
        yield Answer("quota", "pass" if enough else "fail", words if enough else f"{words}; ask AWS for more")


def _quota_code(name: str) -> str | None:
    family = name.split(".")[0]
    letters = "".join(letter for letter in family if letter.isalpha() or letter == "-").split("-")[0]
    starts = [start for start in sorted(QUOTAS, key=len, reverse=True) if letters.startswith(start)]
    return QUOTAS[starts[0]] if starts else None


def _reservations(account: Account, spec: Spec) -> Iterator[Answer]:
    for queue in spec.queues:
        for id in reservation_ids(queue):
            with aws_errors(f"reservation {id}"):
                ec2 = account.client("ec2")
                (row,) = ec2.describe_capacity_reservations(CapacityReservationIds=[id])["CapacityReservations"]
            yield _judged(row, queue)


def reservation_ids(queue: Queue) -> tuple[str, ...]:
    if queue.capacity.reservations:
        return queue.capacity.reservations
    return (queue.capacity.id,) if queue.capacity.kind in ("reservation", "block") and queue.capacity.id else ()


def _judged(row: dict[str, Any], queue: Queue) -> Answer:
    """The state and dates of a reservation; its type, zone and size are judged by `check --aws`."""
    id, state, now = row["CapacityReservationId"], row["State"], datetime.now(UTC)
    start, end = row.get("StartDate"), row.get("EndDate")
    if state in ("expired", "cancelled", "failed", "payment-failed"):
        return Answer("reservation", "fail", f"{id} of queue {queue.name} is {state}")
    if state != "active":
        return Answer(
            "reservation", "warn", f"{id} is {state}{f', it starts at {start:%Y-%m-%d %H:%M} UTC' if start else ''}"
        )
    if end is not None and end - now < SOON:
        return Answer("reservation", "warn", f"{id} ends at {end:%Y-%m-%d %H:%M} UTC, in less than a day")
    words = f"{row['TotalInstanceCount']} x {row['InstanceType']}, {row['AvailableInstanceCount']} free"
    return Answer("reservation", "pass", f"{id}: {words}")


def _buckets(account: Account, spec: Spec) -> Iterator[Answer]:
    api = BucketApi(account)
    for item in spec.storage:
        if item.bucket is not None:
            name = item.bucket.removeprefix("s3://").split("/")[0]
            there = api.exists(name)
            words = f"{item.bucket} for {item.mount}" + ("" if there else " does not exist")
            yield Answer("bucket", "pass" if there else "fail", words)
