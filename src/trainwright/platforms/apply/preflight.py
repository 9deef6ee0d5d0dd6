"""What `up` asks AWS before it makes anything: who is calling, whether the machines are offered in the zone, quotas,
reservations, linked buckets. Read-only; a platform adds questions of its own. The rules of `check --aws` run beside
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from trainwright.aws.session import Account, AwsRefused, aws_errors
from trainwright.catalog.instances import instance
from trainwright.platforms.apply.answers import Answer, Place, place_of
from trainwright.platforms.apply.preflight_capacity import reservations
from trainwright.platforms.apply.preflight_storage import buckets, file_system_quotas
from trainwright.spec.model import Spec

if TYPE_CHECKING:
    from trainwright.platforms.plan.tree import ClusterPlan

# Service Quotas: vCPUs of running on-demand instances, by the first letters of the type.
QUOTAS = {
    "p": "L-417A185B", "g": "L-DB2E81BA", "vt": "L-DB2E81BA", "trn": "L-2C3B7624", "inf": "L-1945791B",
    "c": "L-1216C47A", "m": "L-1216C47A", "r": "L-1216C47A", "t": "L-1216C47A", "hpc": "L-F7808C92",
}  # fmt: skip


Question = tuple[str, Callable[[], Iterable[Answer]]]


def preflight(account: Account, plan: ClusterPlan, own: Iterable[Question] = ()) -> list[Answer]:
    """Every answer. Where a question may not be asked (no permission), it is skipped and says so. `own`: what the
    platform asks."""
    number, who = account.identity()
    answers = [Answer("credentials", "pass", f"account {number}, {who}")]
    spec, place = plan.spec, Place()

    def zone() -> Iterator[Answer]:
        nonlocal place
        place = place_of(account, plan)
        yield from _zone(account, spec, place)

    questions: tuple[Question, ...] = (
        ("zone", zone),
        ("offering", lambda: _offerings(account, spec, place)),
        ("quota", lambda: _quotas(account, spec)),
        ("reservation", lambda: reservations(account, spec, place)),
        ("bucket", lambda: buckets(account, spec)),
        ("file systems", lambda: file_system_quotas(account, plan)),
    )
    for question, ask in (*questions, *own):
        try:
            answers += ask()
        except AwsRefused as error:
            if "AccessDenied" not in error.code and error.code != "UnauthorizedOperation":
                raise
            answers.append(Answer(question, "skip", f"not allowed to ask: {error.what}"))
    return answers


def _zone(account: Account, spec: Spec, place: Place) -> Iterator[Answer]:
    wanted, subnet = spec.zone, spec.network.private_subnet
    if subnet is not None and place.id and wanted not in (None, place.id, place.name):
        yield Answer("zone", "fail", f"subnet {subnet} is in {place.id} ({place.name}), and the spec says {wanted}")
    elif place.id:
        why = "" if wanted else f": {'the subnet' if subnet else 'the network'} is there; the spec names no zone"
        yield Answer("zone", "pass", f"{place.id} is {place.name} in this account{why}")
    elif wanted is not None and place.known:
        known = ", ".join(sorted(place.known))
        yield Answer("zone", "fail", f"{account.region} has no zone {wanted}; it has {known}")


def _offerings(account: Account, spec: Spec, at: Place) -> Iterator[Answer]:
    heads = {str(spec.head.instance)} if spec.platform in ("parallelcluster", "hyperpod") else set()
    wanted = {str(queue.instance) for queue in spec.queues} | heads
    kind, place = ("availability-zone-id", at.id) if at.id else ("region", account.region)
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
