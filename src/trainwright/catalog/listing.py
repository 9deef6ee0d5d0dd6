"""Tables of what the catalog holds, and the same facts as plain records for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwright.catalog.accelerators import accelerators, find_accelerator
from trainwright.catalog.instances import InstanceType, find_instance, instances
from trainwright.catalog.models import ModelShape, find_model, models, parameter_count, parameters_text
from trainwright.catalog.prices import Price, price, price_date, prices_of, regions
from trainwright.catalog.regions import regions as all_regions
from trainwright.errors import UserError, did_you_mean


@dataclass(frozen=True, slots=True)
class Listing:
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    records: list[dict[str, Any]]
    footer: str
    right: frozenset[str] = field(default_factory=frozenset)


def listing(
    kind: str,
    *,
    gpu: bool = False,
    neuron: bool = False,
    efa: bool = False,
    family: str | None = None,
    region: str | None = None,
) -> Listing:
    """All entries of one kind. There are about a thousand types without an accelerator: listed only by family."""
    if kind == "accelerators":
        return _accelerators()
    if kind == "models":
        return _models(family)
    if kind == "regions":
        return _regions()
    types = [t for t in instances() if t.accelerator_count or family or efa]
    if family:
        _known_family(family)
        types = [t for t in types if t.family == family]
    keep = [t for t in types if (not gpu or t.is_gpu) and (not neuron or t.is_neuron) and (not efa or t.efa_cards)]
    if region:
        # A type without a price in the region is most likely not sold there.
        keep = [t for t in keep if price(t.name, region) or price(t.name, region, "spot")]
    return _instances(keep, region)


def record(name: str) -> dict[str, Any]:
    """Every fact about one entry of the catalog, prices included."""
    type_ = find_instance(name)
    if type_:
        return _instance_record(type_, None)
    chip = find_accelerator(name)
    if chip:
        return dataclasses.asdict(chip)
    shape = find_model(name)
    return _model_record(shape) if shape else {}


def known_names() -> list[str]:
    names: list[str] = [t.name for t in instances()]
    return names + [c.name for c in accelerators()] + [m.name for m in models()]


def _instances(unsorted: Iterable[InstanceType], region: str | None) -> Listing:
    types = sorted(unsorted, key=lambda t: (t.family, t.accelerator_count, t.vcpus, t.name))
    where = f"on demand in {region}" if region else "on demand from"
    columns = ("type", "accelerators", "vCPUs", "memory", "network", "EFA", "NVMe", where, "spot from")
    rows = [_instance_row(t, region) for t in types]
    footer = f"{len(types)} types; prices in USD per hour as of {_dates(types, region)}"
    records = [_instance_record(t, region) for t in types]
    return Listing(columns, rows, records, footer, frozenset(columns[2:]))


def _instance_row(type_: InstanceType, region: str | None) -> tuple[str, ...]:
    chips = f"{type_.accelerator_count} × {type_.accelerator}" if type_.accelerator else ""
    share = f" / {1 / type_.accelerator_share:.0f}" if type_.accelerator_share != 1.0 else ""
    usd, spot = _price(type_, region, "on-demand"), _price(type_, region, "spot")
    return (
        type_.name,
        chips + share,
        str(type_.vcpus),
        f"{type_.memory_mib / 1024:,g} GiB",
        f"{type_.network_gbps:,g} Gbps",
        str(type_.efa_cards) if type_.efa_cards else "",
        f"{type_.nvme_gb / 1000:,.1f} TB" if type_.nvme_gb else "",
        f"{usd.usd_hour:,.2f}" if usd else "-",
        f"{spot.usd_hour:,.2f}" if spot else "-",
    )


def _price(type_: InstanceType, region: str | None, kind: str) -> Price | None:
    return price(type_.name, region, kind) if region else next(iter(prices_of(type_.name, kind)), None)


def _dates(types: list[InstanceType], region: str | None) -> str:
    return ", ".join(sorted({p.date for t in types if (p := _price(t, region, "on-demand"))})) or price_date()


def _instance_record(type_: InstanceType, region: str | None) -> dict[str, Any]:
    facts = dataclasses.asdict(type_) | {"gpus": type_.gpus, "nvlinks": type_.nvlinks}
    kinds = ("on-demand", "spot", "capacity-block")
    prices = [p for kind in kinds for p in prices_of(type_.name, kind) if region in (None, p.region)]
    return facts | {"prices": [dataclasses.asdict(p) for p in prices]}


def _accelerators() -> Listing:
    columns = ("name", "title", "bf16", "fp8", "memory", "GB/s", "link GB/s", "best bf16")
    rows = [
        (
            c.name,
            f"{c.maker} {c.title}",
            f"{c.bf16_tflops:,.0f}" if c.bf16_tflops else "-",
            f"{c.fp8_tflops:,.0f}" if c.fp8_tflops else "-",
            f"{c.memory_gib:g} GiB",
            f"{c.memory_gb_s:,.0f}",
            f"{c.nvlink_gb_s:,.0f}" if c.nvlink_gb_s else "-",
            f"{c.mamf_bf16_tflops:,.0f}" if c.mamf_bf16_tflops else "-",
        )
        for c in accelerators()
    ]
    footer = "TFLOP/s are dense peaks; best = the fastest matmul measured; links one way"
    return Listing(columns, rows, [dataclasses.asdict(c) for c in accelerators()], footer, frozenset(columns[2:]))


def _models(family: str | None) -> Listing:
    matching = [m for m in models() if family in (None, m.family)]
    columns = ("name", "kind", "parameters", "layers", "hidden", "heads", "kv", "MLP", "vocabulary", "context")
    rows = [
        (
            m.name,
            m.kind,
            parameters_text(parameter_count(m)),
            *(f"{n:,}" for n in (m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocab, m.context)),
        )
        for m in matching
    ]
    footer = f"{len(matching)} models; each decoder also has a laptop-sized `-debug` sibling"
    return Listing(columns, rows, [_model_record(m) for m in matching], footer, frozenset(columns[2:]))


def _model_record(shape: ModelShape) -> dict[str, Any]:
    return dataclasses.asdict(shape) | {"parameters": parameter_count(shape)}


def _regions() -> Listing:
    priced = set(regions())
    rows = [(r.name, f"{r.zone_prefix}-az1", r.title, "yes" if r.name in priced else "") for r in all_regions()]
    records = [dataclasses.asdict(r) | {"priced": r.name in priced} for r in all_regions()]
    footer = f"{len(rows)} regions; prices as of {price_date()}"
    return Listing(("region", "zone ids like", "title", "prices"), rows, records, footer)


def _known_family(family: str) -> None:
    families = {t.family for t in instances()}
    if family not in families:
        raise UserError(
            f"no instance family {family!r} in the catalog",
            fix=did_you_mean(family, sorted(families)) or "a family is the part before the dot, such as p5",
        )
