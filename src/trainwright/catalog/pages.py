"""Catalog pages as data: a title, sections of labelled facts, notes. The command line prints them, JSON carries
them, and neither knows where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.accelerators import Accelerator, accelerator, find_accelerator
from trainwright.catalog.environment import environment
from trainwright.catalog.instances import InstanceType, find_instance, instances
from trainwright.catalog.models import (
    ModelShape,
    active_parameter_count,
    find_model,
    parameter_count,
    parameters_text,
)
from trainwright.catalog.networks import allreduce_ceiling_gb_s, efa_interfaces, network_gb_s
from trainwright.catalog.prices import ANY_REGION, Price, prices_of
from trainwright.catalog.quotas import quota_for
from trainwright.catalog.regions import find_region
from trainwright.catalog.tables import shipped_table
from trainwright.catalog.versions import minimums_for, software_title, version_set

TRAINING_BYTES = 16  # bf16 weights and gradients, fp32 master weights and two Adam moments
CEILING_NODES = (1, 2, 4, 16, 64)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One region: each purchase option, or None where the catalog has no price for it."""

    region: str
    title: str
    on_demand: float | None
    spot: float | None
    date: str


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    title: str
    sections: tuple[Section, ...]
    prices: tuple[PriceRow, ...]
    notes: tuple[str, ...]
    source: str


def instance_page(type_: InstanceType, region: str | None = None) -> Page:
    chip = find_accelerator(type_.accelerator or "")
    sections = [_compute(type_, chip), _network(type_), _buying(type_)]
    title = f"{type_.accelerator_count} × {chip.title}" if chip else f"{type_.vcpus} vCPUs, {_gib(type_.memory_mib)}"
    return Page(
        name=type_.name,
        title=title,
        sections=tuple(sections),
        prices=price_rows(type_.name, region),
        notes=_notes_on(type_, chip),
        source=_source(type_),
    )


def accelerator_page(chip: Accelerator, region: str | None = None) -> Page:
    carriers = [t for t in instances() if t.accelerator == chip.name and t.accelerator_share == 1.0]
    return Page(
        name=chip.name,
        title=f"{chip.maker} {chip.title}",
        sections=(
            Section("Arithmetic", tuple(_peaks(chip))),
            Section("Memory and links", tuple(_memory(chip))),
            Section("Instances", tuple(_carrier(t, region) for t in carriers)),
        ),
        prices=(),
        notes=tuple(_needs(chip)),
        source=chip.source,
    )


def model_page(shape: ModelShape) -> Page:
    total, active = parameter_count(shape), active_parameter_count(shape)
    size = [("parameters", f"{total:,} ({parameters_text(total)})")]
    if shape.experts:
        size.append(("active a token", f"{active:,}; {shape.experts_per_token} of {shape.experts} experts"))
    size += [
        ("weights", f"{_rounded(total * 2 / 2**30)} GiB in bf16"),
        (
            "training state",
            f"{_rounded(total * TRAINING_BYTES / 2**30)} GiB at {TRAINING_BYTES} bytes per parameter (AdamW)",
        ),
        ("checkpoint", f"{_rounded(total * 12 / 1e9)} GB with the optimizer (fp32 weights and moments)"),
    ]
    return Page(
        name=shape.name,
        title=f"{shape.family} {shape.kind}",
        sections=(Section("Size", tuple(size)), Section("Shape", tuple(_shape(shape)))),
        prices=(),
        notes=(),
        source=shape.source,
    )


def price_rows(name: str, region: str | None = None) -> tuple[PriceRow, ...]:
    """Cheapest on-demand first, then the regions that only have spot."""
    by_region: dict[str, dict[str, Price]] = {}
    for kind in ("on-demand", "spot"):
        for price in prices_of(name, kind):
            by_region.setdefault(price.region, {})[kind] = price
    rows = [_price_row(where, kinds) for where, kinds in by_region.items() if region in (None, where)]
    return tuple(sorted(rows, key=lambda r: (r.on_demand is None, r.on_demand or r.spot or 0.0, r.region)))


def _price_row(region: str, kinds: dict[str, Price]) -> PriceRow:
    known = find_region(region)
    on_demand, spot = kinds.get("on-demand"), kinds.get("spot")
    return PriceRow(
        region=region,
        title=known.title if known else "",
        on_demand=on_demand.usd_hour if on_demand else None,
        spot=spot.usd_hour if spot else None,
        date=next(iter(kinds.values())).date,
    )


def _compute(type_: InstanceType, chip: Accelerator | None) -> Section:
    rows: list[tuple[str, str]] = []
    if chip:
        memory = type_.accelerator_memory_mib
        share = "" if type_.accelerator_share == 1.0 else f" (1/{1 / type_.accelerator_share:.0f} of a chip)"
        what = "GPUs" if type_.is_gpu else "Neuron chips"
        total = f"{_gib(memory * type_.accelerator_count)} of memory together"
        rows.append((what, f"{type_.accelerator_count} × {chip.maker} {chip.title}{share} ({chip.arch}), {total}"))
        rows += [*_peaks(chip), *_memory(chip)[1:]]
    cores = f"{type_.vcpus} vCPUs, {type_.cores} cores of {type_.threads_per_core} threads"
    sockets = f", {type_.sockets} sockets × {type_.cores_per_socket} cores" if type_.sockets else ""
    rows.append(("CPU", f"{cores}{sockets} ({_processor(type_)})" if type_.sockets else cores))
    rows.append(("memory", _gib(type_.memory_mib)))
    if type_.nvme_gb:
        rows.append(("NVMe", f"{type_.nvme_disks} × {type_.nvme_gb // type_.nvme_disks:,} GB, lost on stop"))
    return Section("One node", tuple(rows))


def _peaks(chip: Accelerator) -> list[tuple[str, str]]:
    kinds = (("bf16", chip.bf16_tflops), ("fp16", chip.fp16_tflops), ("fp8", chip.fp8_tflops))
    peaks = " · ".join(f"{value:,.0f} {kind}" for kind, value in kinds if value)
    rows = [("peak", f"{peaks} TFLOP/s, dense")]
    if chip.mamf_bf16_tflops:
        part = chip.mamf_bf16_tflops / chip.bf16_tflops
        rows.append(("best matmul", f"{chip.mamf_bf16_tflops:,.0f} TFLOP/s bf16 measured, {part:.0%} of the peak"))
    return rows


def _memory(chip: Accelerator) -> list[tuple[str, str]]:
    rows = [("memory", f"{chip.memory_gib:g} GiB"), ("bandwidth", f"{chip.memory_gb_s:,.0f} GB/s")]
    link = "NeuronLink" if chip.is_neuron else "NVLink" if chip.maker == "NVIDIA" else "links"
    if chip.nvlink_gb_s:
        rows.append((link, f"{chip.nvlinks} links, {chip.nvlink_gb_s:,.0f} GB/s one way"))
    else:
        rows.append((link, "none: chips communicate over PCIe"))
    return rows


def _network(type_: InstanceType) -> Section:
    rows = [("total", f"{type_.network_gbps:,g} Gbps ({network_gb_s(type_):,g} GB/s) one way")]
    if type_.efa_cards:
        cards = f"{type_.efa_cards} EFA" if type_.efa_cards == type_.network_cards else f"{type_.efa_cards} with EFA"
        rows.append(("cards", f"{type_.network_cards}, {cards}, {type_.peak_gbps_per_card:g} Gbps each"))
    else:
        rows.append(("cards", f"{type_.network_cards}, no EFA"))
    rows.append(("interfaces", f"at most {type_.max_enis}{_template(type_)}"))
    ceilings = [(n, allreduce_ceiling_gb_s(type_, n)) for n in CEILING_NODES]
    text = " · ".join(f"{n} {'node' if n == 1 else 'nodes'} {c:,.0f}" for n, c in ceilings if c)
    if text and type_.efa_cards:
        rows.append(("all-reduce", f"bus bandwidth cannot exceed {text} GB/s"))
    return Section("Network", tuple(rows))


def _template(type_: InstanceType) -> str:
    """How a launch template lists the cards of a node that has several."""
    cards = efa_interfaces(type_)
    if len(cards) < 2:
        return ""
    first, second, last = cards[0], cards[1], cards[-1]
    others = f"cards {second.card}-{last.card}" if last.card > second.card else f"card {second.card}"
    return f"; card 0 device 0 {first.kind}, {others} device {second.device} {second.kind}"


def _buying(type_: InstanceType) -> Section:
    rows = [("sold as", ", ".join(type_.capacity)), ("placement", ", ".join(type_.placement))]
    quota = quota_for(type_.name, 1)
    if quota:
        rows.append(("quota", f"{quota.vcpus} vCPUs each of {quota.code} ({quota.name})"))
    for block in prices_of(type_.name, "capacity-block")[:1]:
        where = "" if block.region == ANY_REGION else f" in {block.region}"
        rows.append(("capacity block", f"${block.usd_hour:,.2f} an hour{where} on {block.date} ({block.source})"))
    return Section("Buying", tuple(rows))


def _notes_on(type_: InstanceType, chip: Accelerator | None) -> tuple[str, ...]:
    notes: list[str] = []
    if type_.network_cards > 1:
        notes.append("private subnet and a NAT gateway: a node with several cards gets no public address by itself")
    if type_.efa_cards:
        notes.append("EFA: one zone; a security group that lets everything in from itself and out to itself")
        notes.append("a cluster placement group, except in a capacity block or a reservation that AWS placed")
    if type_.sockets > 1 and type_.accelerator_count:
        sockets = (
            f"Sockets={type_.sockets} CoresPerSocket={type_.cores_per_socket} ThreadsPerCore={type_.threads_per_core}"
        )
        notes.append(f"Slurm: {sockets}; ParallelCluster counts one core per socket unless configured")
    if type_.nvme_gb:
        notes.append("NVMe is scratch: stripe it for containers and caches, keep checkpoints on shared storage")
    if chip and chip.bf16_tflops == 0 and type_.is_gpu:
        notes.append("no bf16 in hardware: train in fp16 with loss scaling, or in fp32")
    if type_.family in ("p2", "p3", "p3dn", "g2", "g3", "g3s"):
        notes.append("ParallelCluster 3.8 and later has no driver for this family")
    if chip:
        notes += _needs(chip)
        notes += [f"{v.name}={v.value}: {v.why}" for v in environment(type_, version_set().versions())]
    notes += [row["why"] for row in shipped_table("corrections.csv").records() if row["name"] == type_.name]
    return tuple(dict.fromkeys(notes))


def _needs(chip: Accelerator) -> list[str]:
    """The strictest need for each piece of software."""
    strictest = {m.software: m for m in reversed(minimums_for(chip.name))}
    return [f"{software_title(m.software)} {m.minimum} or newer: {m.why}" for m in strictest.values()]


def _shape(shape: ModelShape) -> list[tuple[str, str]]:
    heads = f"{shape.heads}" if shape.heads == shape.kv_heads else f"{shape.heads}, {shape.kv_heads} key-value heads"
    return [
        ("layers", str(shape.layers)),
        ("hidden", f"{shape.hidden:,}"),
        ("heads", f"{heads}, {shape.width_per_head} wide"),
        ("MLP", f"{shape.ffn:,} ({shape.activation})"),
        ("vocabulary", f"{shape.vocab:,}, {'tied' if shape.tied else 'separate'} output head"),
        ("context", f"{shape.context:,} tokens, {shape.position} positions"),
        ("norm", shape.norm),
    ]


def _carrier(type_: InstanceType, region: str | None) -> tuple[str, str]:
    rows = [r for r in price_rows(type_.name, region) if r.on_demand]
    cards = f"{type_.network_gbps:,g} Gbps" + (" EFA" if type_.efa_cards else "")
    if not rows or rows[0].on_demand is None:
        return (type_.name, f"{_chips(type_)}, {cards}; no on-demand price in the catalog")
    each = rows[0].on_demand / type_.accelerator_count
    return (
        type_.name,
        f"{_chips(type_)}, {cards}; ${each:,.2f} per chip-hour in {rows[0].region} ({rows[0].date})",
    )


def _chips(type_: InstanceType) -> str:
    return "1 chip" if type_.accelerator_count == 1 else f"{type_.accelerator_count} chips"


def _processor(type_: InstanceType) -> str:
    rows = shipped_table("processors.csv").records()
    return next(row["processor"] for row in rows if row["family"] == type_.family)


def _source(type_: InstanceType) -> str:
    table = shipped_table("instances.csv")
    kind = type_.source.split()[0]
    return f"{table.notes.get(f'source {kind}', type_.source)} ({table.notes['date']})"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:,.0f} GiB" if mib % 1024 == 0 or mib > 10240 else f"{mib:,} MiB"


def find_page(name: str, region: str | None = None) -> Page | None:
    """The page for a name of the catalog: an instance type, an accelerator or a model."""
    type_ = find_instance(name)
    if type_:
        return instance_page(type_, region)
    if find_accelerator(name):
        return accelerator_page(accelerator(name), region)
    shape = find_model(name)
    return model_page(shape) if shape else None
