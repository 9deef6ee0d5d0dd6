"""The cluster as a picture: one SVG for a slide or a README, light or dark, with no script and no font of
its own. Everything in it comes from the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.platforms.plan.bill import Bill
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.spec.model import Queue, Spec, Storage

WIDTH = 1120
MARGIN = 32
GAP = 20
NODE = 40
NODES_SHOWN = 10

_STYLE = """
.page{fill:#ffffff}.box{fill:#f6f8fa;stroke:#d0d7de}.head{fill:#eef4ff;stroke:#84a9ff}.queue{fill:#f0faf4;stroke:#7cc79a}
.store{fill:#fff7ec;stroke:#e6b566}.node{fill:#2f9e5b}.maybe{fill:none;stroke:#2f9e5b;stroke-dasharray:3 3}
.chip-node{fill:#d8f5e3}.chip-maybe{fill:#9fd8b6}.line{stroke:#8c959f;fill:none}
.title{fill:#1f2328}.text{fill:#1f2328}.dim{fill:#59636e}.price{fill:#1a7f37}
@media (prefers-color-scheme:dark){.page{fill:#0d1117}.box{fill:#151b23;stroke:#3d444d}
.head{fill:#121d2f;stroke:#3b6fd4}.queue{fill:#0f2318;stroke:#2f7d4f}.store{fill:#2a1f0d;stroke:#9a6b1f}.node{fill:#2f9e5b}.maybe{stroke:#3fb950}
.chip-node{fill:#d8f5e3}.chip-maybe{fill:#2f7d4f}.line{stroke:#656c76}.title,.text{fill:#f0f6fc}.dim{fill:#9198a1}
.price{fill:#3fb950}}
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
"""


@dataclass(frozen=True, slots=True)
class Card:
    """A box with a title and lines of facts; nodes are drawn under a queue's."""

    style: str
    title: str
    facts: tuple[str, ...]
    nodes: tuple[int, int] | None = None  # always up, at most
    chips: int = 0  # accelerators of one node
    aside: str = ""

    def height(self) -> int:
        return 44 + 21 * len(self.facts) + ((NODE + 22) if self.nodes else 0)


def picture(plan: ClusterPlan) -> str:
    """The SVG text of a plan."""
    spec = plan.spec
    head = _head(spec, plan.bill)
    queues = [_queue(queue, plan.bill, spec) for queue in spec.queues]
    # A node's own NVMe is shown with its queue: it is not shared.
    stores = [_store(item, plan.bill) for item in spec.storage if item.nvme is None]
    if spec.accounting is not None:
        records = ("Slurm's job records", "MySQL database")
        stores.append(Card("store", "accounting", records, aside=_price(plan.bill, "accounting")))
    stores = stores or [Card("store", "no shared storage", ())]
    inner = WIDTH - 2 * MARGIN
    left = 250
    right = inner - left - 3 * GAP
    middle = max(head.height(), sum(q.height() + GAP for q in queues) - GAP)
    columns = max(2, len(stores))
    store_width = (inner - 2 * GAP - GAP * (columns - 1)) // columns
    store_height = max(card.height() for card in stores)
    local = spec.platform == "local"
    top = 104
    body = [*_title(plan)]
    frame = middle + 56 + 34 + store_height + GAP
    body += _frame(MARGIN, top, inner, frame, _place(spec))
    y = top + 46
    x = MARGIN + GAP
    body += _caption(x, y, "" if local else f"public subnet · {_network(spec)[0]}")
    body += _caption(x + left + GAP, y, "" if local else f"private subnet · {_network(spec)[1]}")
    y += 14
    head_y = y + (middle - head.height()) / 2
    body += _card(head, x, head_y, left)
    queue_y = float(y)
    for card in queues:
        body += _wire(x + left, head_y + head.height() / 2, x + left + GAP, queue_y + card.height() / 2)
        body += _card(card, x + left + GAP, queue_y, right)
        queue_y += card.height() + GAP
    y += middle + 20
    body += [f'<path class="line" d="M{x + 20} {y}H{x + inner - 2 * GAP - 20}"/>']
    body += [f'<path class="line" d="M{x + left / 2:.0f} {head_y + head.height():.0f}V{y}"/>']
    body += [f'<path class="line" d="M{x + left + GAP + right / 2:.0f} {queue_y - GAP:.0f}V{y}"/>']
    for number, card in enumerate(stores):
        sx = x + number * (store_width + GAP)
        body += [f'<path class="line" d="M{sx + store_width / 2:.0f} {y}v14"/>']
        body += _card(card, sx, y + 14, store_width, store_height)
    return _svg(body, top + frame + MARGIN, plan)


def _svg(body: list[str], height: float, plan: ClusterPlan) -> str:
    title = escape(f"Cluster {plan.spec.name}: {len(plan.spec.queues)} queues on {plan.spec.platform}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" font-size="14">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _title(plan: ClusterPlan) -> Iterator[str]:
    spec, bill = plan.spec, plan.bill
    yield _text(MARGIN, 46, spec.name, "title", 26, bold=True)
    where = " · ".join(part for part in (spec.platform, spec.region, spec.zone) if part)
    yield _text(MARGIN, 74, where, "dim", 15)
    if not bill.lines:
        yield _text(WIDTH - MARGIN, 46, "nothing to pay", "price", 22, bold=True, end=True)
        return
    yield _text(WIDTH - MARGIN, 46, f"${bill.usd_hour_full:,.2f} an hour", "price", 26, bold=True, end=True)
    least = f"${bill.usd_hour_idle:,.2f} with no job · " if bill.usd_hour_idle < bill.usd_hour_full else ""
    more = "without what has no public price · " if bill.unpriced else ""
    yield _text(
        WIDTH - MARGIN, 74, f"all nodes up · {least}{more}list prices of {bill.dates_text}", "dim", 14, end=True
    )


def _place(spec: Spec) -> str:
    if spec.platform == "local":
        return "this machine"
    vpc = spec.network.vpc or "VPC 10.0.0.0/16 + 10.1.0.0/16"
    return f"{vpc} · {spec.zone or spec.region}"


def _network(spec: Spec) -> tuple[str, str]:
    given = spec.network
    return given.public_subnet or "10.0.0.0/20", given.private_subnet or "10.1.0.0/17, out through NAT"


def _head(spec: Spec, bill: Bill) -> Card:
    if spec.platform == "local":
        return Card("head", "head", ("Slurm controller",))
    if spec.platform == "batch":
        return Card("head", "job queues", ("AWS Batch", "nodes start for a job and stop after it"))
    if spec.platform in ("eks", "hyperpod-eks"):
        facts = ["EKS, two zones", f"jobs as {spec.kubernetes.kind}", "Kueue admits whole jobs"]
        return Card("head", "control plane", tuple(facts), aside=_price(bill, "head"))
    facts = [str(spec.head.instance), "Slurm controller, sign-in"]
    facts.append(f"ssh key {spec.head.key}" if spec.head.key else "Session Manager")
    if spec.monitoring:
        facts.append("Prometheus")
    return Card("head", "head node", tuple(facts), aside=_price(bill, "head"))


def _queue(queue: Queue, bill: Bill, spec: Spec) -> Card:
    if spec.platform == "local":
        nodes = queue.nodes or 1
        facts = f"{nodes} nodes · {queue.cpus} CPUs each" + (f" · {queue.gpus} GPUs each" if queue.gpus else "")
        return Card("queue", f"queue {queue.name}", (facts,), (nodes, nodes), queue.gpus or 0)
    machine = find_instance(queue.instance or "")
    assert queue.count is not None
    count = f"{queue.count.min}-{queue.count.max}" if queue.count.min != queue.count.max else str(queue.count.max)
    facts_list = [f"{count} × {queue.instance} · {_capacity(queue)}"]
    if machine is not None:
        facts_list.append(" · ".join(_machine(machine, queue, spec)))
    chips = machine.accelerator_count if machine is not None else 0
    price = _price(bill, f"queue {queue.name}", most=True)
    nodes_shown = (queue.count.min, queue.count.max)
    return Card("queue", f"queue {queue.name}", tuple(facts_list), nodes_shown, chips, price)


def _machine(machine: InstanceType, queue: Queue, spec: Spec) -> Iterator[str]:
    chip = find_accelerator(machine.accelerator) if machine.accelerator else None
    if machine.accelerator_count:
        memory = machine.accelerator_memory_mib / 1024
        name = (chip.name if chip is not None else str(machine.accelerator)).split("-")[0]
        yield f"{machine.accelerator_count} × {name.upper()} {memory:,.0f} GiB"
    else:
        yield f"{machine.vcpus} vCPUs"
    if queue.efa:
        yield f"EFA × {machine.efa_cards}, {machine.network_gbps:,.0f} Gbit/s"
    else:
        yield f"{machine.network_gbps:,.0f} Gbit/s"
    scratch = next((s.mount for s in spec.storage if s.nvme), None)
    if scratch is not None and machine.nvme_gb:
        yield f"{scratch} {machine.nvme_gb / 1000:,.1f} TB NVMe"
    if queue.placement:
        yield "placement group"


def _capacity(queue: Queue) -> str:
    kinds = {"reservation": "reservation", "block": "capacity block", "group": "reservation group"}
    kind = queue.capacity.kind
    if kind == "plan":
        return f"training plan {(queue.capacity.id or '').rpartition('/')[2]}"
    if queue.capacity.reservations:
        return f"{len(queue.capacity.reservations)} reservations as one group"
    if kind == "group":
        return f"reservation group {(queue.capacity.id or '').rpartition('/')[2]}"
    return f"{kinds[kind]} {queue.capacity.id}" if kind in kinds else kind


def _store(item: Storage, bill: Bill) -> Card:
    title, facts = item.mount, []
    if item.lustre is not None:
        facts = [f"Lustre {item.lustre.id}"] if item.lustre.id else [_size("Lustre", item.lustre.capacity)]
        if item.lustre.id is None and item.lustre.throughput:
            facts.append(f"{item.lustre.throughput} MB/s per TiB" + (" over EFA" if item.lustre.efa else ""))
        if item.bucket:
            facts.append(f"⇄ {item.bucket}")
    elif item.openzfs is not None:
        facts = [f"OpenZFS {item.openzfs.id}"] if item.openzfs.id else [_size("OpenZFS", item.openzfs.capacity)]
        if item.openzfs.id is None:
            facts.append(f"{item.openzfs.throughput} MB/s, NFS")
    elif item.ebs is not None:
        facts = [_size("EBS", item.ebs.capacity), "shared by the head node"]
    else:
        facts = [f"EFS {item.efs.id or ''}".strip() if item.efs is not None else f"folder {item.folder}"]
    return Card("store", title, tuple(facts), aside=_price(bill, f"storage {item.mount}"))


def _size(name: str, size: int | None) -> str:
    from trainwright.platforms.setting import gib, lustre_gib

    whole_gib = lustre_gib(size) if name == "Lustre" else gib(size)
    return f"{name} {whole_gib / 1000:,.1f} TiB" if name == "Lustre" else f"{name} {whole_gib:,} GiB"


def _price(bill: Bill, part: str, most: bool = False) -> str:
    lines = [line for line in bill.lines if line.part == part]
    if not lines:
        return ""
    if any(line.usd_hour_each is None for line in lines):
        return "billed by use" if all(line.by_use for line in lines) else "no public price"
    total = sum(line.usd_hour_most for line in lines)
    return f"${total:,.2f}/h" if not most else f"${total:,.2f}/h with all nodes"


def _frame(x: float, y: float, width: float, height: float, label: str) -> Iterator[str]:
    yield f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height:.0f}" rx="14"/>'
    yield _text(x + GAP, y + 27, label, "dim", 13)


def _caption(x: float, y: float, text: str) -> Iterator[str]:
    if text:
        yield _text(x, y + 4, text, "dim", 12)


def _wire(x1: float, y1: float, x2: float, y2: float) -> Iterator[str]:
    middle = (x1 + x2) / 2
    yield f'<path class="line" d="M{x1:.0f} {y1:.0f}H{middle:.0f}V{y2:.0f}H{x2:.0f}"/>'


def _card(card: Card, x: float, y: float, width: float, height: float | None = None) -> Iterator[str]:
    tall = height or card.height()
    yield f'<rect class="{card.style}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{tall:.0f}" rx="10"/>'
    yield _text(x + 16, y + 28, card.title, "text", 16, bold=True)
    if card.aside:
        yield _text(x + width - 16, y + 28, card.aside, "price", 14, end=True)
    for number, fact in enumerate(card.facts):
        yield _text(x + 16, y + 50 + 21 * number, _fit(fact, width - 32), "text" if number == 0 else "dim", 14)
    if card.nodes is not None:
        yield from _nodes(card, x + 16, y + 44 + 21 * len(card.facts) + 6)


def _nodes(card: Card, x: float, y: float) -> Iterator[str]:
    assert card.nodes is not None
    always, most = card.nodes
    for number in range(min(most, NODES_SHOWN)):
        style = "node" if number < always else "maybe"
        left = x + number * (NODE + 8)
        yield f'<rect class="{style}" x="{left:.0f}" y="{y:.0f}" width="{NODE}" height="{NODE}" rx="6"/>'
        yield from _chips(card.chips, style, left, y)
    end = x + min(most, NODES_SHOWN) * (NODE + 8) + 6
    rest = f"… {most} in all" if most > NODES_SHOWN else ""
    coming = "filled: always up" if 0 < always < most else "start on demand, stop when idle" if always == 0 else ""
    yield _text(end, y + 20, " · ".join(part for part in (rest, coming) if part), "dim", 12)


def _chips(count: int, style: str, x: float, y: float) -> Iterator[str]:
    """A node's accelerators as small squares in its box, at most sixteen in rows of four."""
    size, step = 5, 8
    rows = -(-min(count, 16) // 4)
    top = y + (NODE - (rows - 1) * step - size) / 2
    for number in range(min(count, 16)):
        column, row = number % 4, number // 4
        left = x + (NODE - 3 * step - size) / 2 + column * step
        place = f'x="{left:.1f}" y="{top + row * step:.1f}"'
        yield f'<rect class="chip-{style}" {place} width="{size}" height="{size}" rx="1"/>'


def _fit(text: str, width: float) -> str:
    """The text, cut where it would leave its box; letters of a sans-serif are about 0.52 of their size wide."""
    room = int(width / (14 * 0.52))
    return text if len(text) <= room else text[: room - 1] + "…"


def _text(x: float, y: float, text: str, style: str, size: int, *, bold: bool = False, end: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}" font-size="{size}"{weight}{anchor}>{escape(text)}</text>'
