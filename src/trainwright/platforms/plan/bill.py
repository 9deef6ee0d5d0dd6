"""What a cluster costs an hour, part by part, with every node up and with none but the permanent ones. Each price keeps
its day and its source; a part without a public price says so and is left out of the sum, never guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwright.catalog.instances import instance
from trainwright.catalog.prices import price
from trainwright.catalog.storage import (
    HOURS_PER_MONTH,
    ebs_monthly_usd,
    lustre_monthly_usd,
    nat_monthly_usd,
    openzfs_monthly_usd,
    unit_price,
)
from trainwright.platforms.setting import Setting, gib, lustre_gib
from trainwright.platforms.wiring import StackPlan, deployment
from trainwright.spec.model import Queue, Storage

HYPERPOD = ("hyperpod", "hyperpod-eks")
DIRECTORY_SERVER = "t3.micro"
_PRICE_KIND = {"spot": "spot", "block": "capacity-block"}


@dataclass(frozen=True, slots=True)
class Line:
    """One part: so many of something, at a price each."""

    part: str
    what: str
    least: int
    most: int
    usd_hour_each: float | None  # None: no public price, or billed by use
    date: str
    note: str = ""
    by_use: bool = False  # billed by what is stored or moved, so no hour has a price

    @property
    def usd_hour_least(self) -> float:
        return self.least * (self.usd_hour_each or 0.0)

    @property
    def usd_hour_most(self) -> float:
        return self.most * (self.usd_hour_each or 0.0)


@dataclass(frozen=True, slots=True)
class Bill:
    """Every part of a cluster and their sum."""

    region: str
    lines: tuple[Line, ...]

    @property
    def usd_hour_idle(self) -> float:
        """With no node up but those that always are."""
        return sum(line.usd_hour_least for line in self.lines)

    @property
    def usd_hour_full(self) -> float:
        return sum(line.usd_hour_most for line in self.lines)

    @property
    def usd_month_idle(self) -> float:
        return self.usd_hour_idle * HOURS_PER_MONTH

    @property
    def usd_month_full(self) -> float:
        return self.usd_hour_full * HOURS_PER_MONTH

    @property
    def dates(self) -> tuple[str, ...]:
        return tuple(sorted({line.date for line in self.lines if line.date}))

    @property
    def dates_text(self) -> str:
        """The day of the prices, or the oldest and the newest."""
        return " to ".join(dict.fromkeys((self.dates[0], self.dates[-1]))) if self.dates else ""

    @property
    def headline(self) -> str:
        """The cost in one sentence, as the starter specs say it."""
        if not self.lines:
            return "nothing"
        idle = f", ${self.usd_hour_idle:,.2f} with no job" if self.usd_hour_idle < self.usd_hour_full else ""
        beside = "".join(f", beside {line.part}: {line.note}" for line in self.unpriced)
        return f"${self.usd_hour_full:,.2f} an hour with all nodes up{idle}{beside} (list prices of {self.dates_text})"

    @property
    def unpriced(self) -> tuple[Line, ...]:
        """Parts that do cost money every hour, at a price that is not public."""
        return tuple(line for line in self.lines if line.usd_hour_each is None and not line.by_use)


def bill(setting: Setting, stacks: tuple[StackPlan, ...]) -> Bill:
    """The bill of a cluster and the stacks around it."""
    region = setting.spec.region or ""
    lines = _control_plane(region) if setting.spec.platform in ("eks", "hyperpod-eks") else []
    if setting.spec.head.instance:
        lines = _head(setting, region)
    for queue in setting.spec.queues:
        lines += _queue(setting, queue, region)
    for item in setting.spec.storage:
        lines += _storage(item, region)
    lines += [line for stack in stacks for line in _stack(stack, region)]
    return Bill(region, tuple(lines))


def _control_plane(region: str) -> list[Line]:
    """EKS itself, and the small nodes for its controllers."""
    from trainwright.platforms.eks.nodegroups import SYSTEM_INSTANCE, SYSTEM_NODES

    listed = unit_price("eks/cluster-hour", region)
    offer = price(SYSTEM_INSTANCE, region)
    each, date, note = (offer.usd_hour, offer.date, "") if offer else (None, "", "no public price in this region")
    return [
        Line("head", "EKS control plane", 1, 1, listed.usd, listed.date, _region_note(listed.exact)),
        Line("head", f"{SYSTEM_INSTANCE} for controllers", SYSTEM_NODES, SYSTEM_NODES, each, date, note),
    ]


def _head(setting: Setting, region: str) -> list[Line]:
    head = setting.spec.head
    machine = instance(head.instance or "")
    offer = price(machine.name, region)
    each, date, note = (offer.usd_hour, offer.date, "") if offer else (None, "", "no public price in this region")
    lines = [
        Line("head", machine.name, 1, 1, each, date, note),
        _disk("head", 1, 1, gib(head.root_volume), region),
    ]
    if setting.spec.platform == "hyperpod":  # its nodes are in a private subnet
        return [_by_sagemaker(lines[0]), lines[1]]
    # The public subnet of our network hands out an address; what a named subnet does is not known.
    return lines if setting.spec.network.private_subnet is not None else [*lines, _address("head", region)]


def _address(part: str, region: str) -> Line:
    listed = unit_price("ipv4/hour", region)
    return Line(part, "public IPv4 address", 1, 1, listed.usd, listed.date, _region_note(listed.exact))


def _queue(setting: Setting, queue: Queue, region: str) -> list[Line]:
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    kind = _PRICE_KIND.get(queue.capacity.kind, "on-demand")
    offer = price(machine.name, region, kind)
    each, date = (offer.usd_hour, offer.date) if offer else (None, "")
    part = f"queue {queue.name}"
    least, most = queue.count.min, queue.count.max
    reserved = queue.capacity.kind in ("reservation", "group", "block")
    if setting.spec.platform in HYPERPOD:
        least = most  # it stops no nodes when there is no work
        each, date = (None, "") if queue.capacity.kind == "plan" else (each, date)
    nodes = Line(
        part, machine.name, most if reserved else least, most, each, date, _queue_note(queue, each is not None)
    )
    nodes = _by_sagemaker(nodes) if setting.spec.platform in HYPERPOD else nodes
    return [nodes, _disk(part, least, most, gib(queue.root_volume), region)]


def _by_sagemaker(line: Line) -> Line:
    """An instance that SageMaker bills, at EC2's price: its own list is not in the catalog."""
    if line.usd_hour_each is None:
        return line
    note = "; ".join(filter(None, (line.note, "EC2's price; SageMaker's own may be higher")))
    return replace(line, what=f"ml.{line.what}", note=note)


def _queue_note(queue: Queue, priced: bool) -> str:
    kind = queue.capacity.kind
    if not priced:
        advance = {
            "block": "paid in advance at the price of that day",
            "plan": "paid in advance with the training plan",
        }
        return advance.get(kind, "no public price in this region")
    if kind in ("reservation", "group"):
        return "reserved: paid whether it runs or not"
    if kind == "block":
        return "paid in advance for the whole block"
    return "spot, the lowest zone's; it moves" if kind == "spot" else ""


def _disk(part: str, least: int, most: int, size: int, region: str) -> Line:
    date = unit_price("ebs/gp3", region).date
    return Line(
        part, f"{size} GiB disk (gp3)", least, most, ebs_monthly_usd(size, region=region) / HOURS_PER_MONTH, date
    )


def _storage(item: Storage, region: str) -> list[Line]:
    part = f"storage {item.mount}"
    if item.lustre is not None and item.lustre.id is None:
        kind, size, unit = deployment(item), lustre_gib(item.lustre.capacity), item.lustre.throughput
        listed = unit_price(f"lustre/{kind}/SSD/{unit or 0}", region)
        each = lustre_monthly_usd(size, unit, region, kind) / HOURS_PER_MONTH
        speed = f" at {unit} MB/s per TiB" if unit else ""
        what = f"Lustre {kind.lower().replace('_', '-')}, {size:,} GiB{speed}"
        return [Line(part, what, 1, 1, each, listed.date, _region_note(listed.exact))]
    if item.openzfs is not None and item.openzfs.id is None:
        size, speed_mb = gib(item.openzfs.capacity), item.openzfs.throughput or 0
        listed = unit_price("openzfs/capacity", region)
        each = openzfs_monthly_usd(size, speed_mb, region) / HOURS_PER_MONTH
        what = f"OpenZFS, {size:,} GiB, {speed_mb} MB/s"
        note = "; ".join(filter(None, (_region_note(listed.exact), "without the price of its second server")))
        return [Line(part, what, 1, 1, each, listed.date, note)]
    if item.ebs is not None:
        return [_disk(part, 1, 1, gib(item.ebs.capacity), region)]
    if item.efs is not None and item.efs.id is None:
        return [Line(part, "EFS", 1, 1, None, "", "billed by what is stored", by_use=True)]
    return []


def _stack(stack: StackPlan, region: str) -> list[Line]:
    if stack.template == "network":
        return _network(region)
    if stack.template == "bucket":
        return [Line("bucket", "S3", 1, 1, None, "", "billed by what is stored", by_use=True)]
    if stack.template == "accounting":
        listed = unit_price("aurora/acu-hour", region)
        what, note = "Aurora, 0.5 ACU at rest", "up to 4 ACU at work"
        return [Line("accounting", what, 1, 1, listed.usd / 2, listed.date, note)]
    if stack.template == "directory":
        server = price(DIRECTORY_SERVER, region)
        usd, day = (server.usd_hour, server.date) if server else (None, "")
        name = "and $0.50 per month for its name in the VPC"
        note = name if server else f"about a cent an hour, {name}"
        return [Line("directory", DIRECTORY_SERVER, 1, 1, usd, day, note)]
    return []


def _network(region: str) -> list[Line]:
    gateway, data = unit_price("nat/hour", region), unit_price("nat/data", region)
    hourly = nat_monthly_usd(region) / HOURS_PER_MONTH
    by_use = f"${data.usd:.3f} per GB; S3 and DynamoDB go by endpoints, which cost nothing"
    return [
        Line("network", "NAT gateway", 1, 1, hourly, gateway.date, _region_note(gateway.exact)),
        _address("network", region),
        Line("network", "traffic of the NAT gateway", 1, 1, None, data.date, by_use, by_use=True),
    ]


def _region_note(exact: bool) -> str:
    return "" if exact else "us-east-1's list price"
