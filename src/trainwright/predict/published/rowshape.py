"""Turns the text of a published row into a model shape and a cluster: names are matched to the catalog, and what a row
leaves out is filled in by stated rules."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.catalog.models import known_shapes
from trainwright.predict.hardware import GIB, Cluster, Device, device, fabric, inner_link
from trainwright.train.models.shape import ModelShape, parameter_count

CHIPS = {
    "gb300": "gb300", "gb200": "gb200", "b300": "b300", "b200": "b200", "h200": "h200", "h800": "h800", "h20": "h20",
    "h100": "h100", "a800": "a800-80", "a100": "a100-80", "v100": "v100", "a10g": "a10g", "l40s": "l40s", "l4": "l4",
    "t4": "t4", "mi300x": "mi300x", "trainium2": "trainium2", "trainium": "trainium1",
}  # fmt: skip
MEMORY_BANDWIDTH = {("h100", "hbm2e"): 2.4e12}
# Boards other than SXM: watts, bytes/s, whether there is NVLink. Vendor data sheets.
FORMS = {
    ("h100", "pcie"): (350.0, 2.0e12, False),
    ("h100", "nvl"): (400.0, 3.9e12, False),
    ("a100", "pcie"): (300.0, 1.935e12, False),
}
NETWORK_GBPS = {"sm_70": 50.0, "sm_80": 200.0, "sm_90": 400.0, "sm_100": 400.0}
PLAIN_MLP = ("gpt", "mpt", "nemotron", "mt-nlg", "opt", "falcon", "bloom", "starcoder", "pythia", "neox")
LEARNED = ("gpt", "mpt", "mt-nlg", "opt")


def number(text: str | None) -> float | None:
    try:
        return float((text or "").strip())
    except ValueError:
        return None


def whole(text: str | None, default: int = 0) -> int:
    value = number(text)
    return default if value is None else int(value)


def chip_of(text: str) -> Device | None:
    """The accelerator a table names, with the memory, power and memory kind it states."""
    low = text.lower()
    key = next((chip for word, chip in CHIPS.items() if word in low), None)
    if key is None:
        return None
    size = re.search(r"(\d+)\s*gi?b", low)
    if key == "a100-80" and size and int(size[1]) <= 48:
        return device("a100-40")
    chip = device(key)
    if size and key in ("h100", "v100") and abs(int(size[1]) * GIB - chip.memory) > 8 * GIB:
        chip = replace(chip, memory=int(size[1]) * 1e9)
    for (name, word), (power, rate, linked) in FORMS.items():
        if name == key.split("-")[0] and word in low:
            chip = replace(chip, watts=power, bandwidth=rate, nvlink=chip.nvlink if linked else 0.0)
    watts = re.search(r"(\d{3,4})\s*w\b", low)
    if watts:
        chip = replace(chip, watts=float(watts[1]))
    for (name, word), rate in MEMORY_BANDWIDTH.items():
        if name == key and word in low:
            chip = replace(chip, bandwidth=rate)
    return chip


def network_of(text: str, chip: Device, per_node: int) -> tuple[str, float]:
    """(kind, GB/s per GPU) of the network; unstated: the reference design of the accelerator's generation."""
    low = text.lower()
    efa = "efa-1" if chip.family == "sm_80" else "efa"
    kind = efa if "efa" in low else "ethernet" if "roce" in low or "ethernet" in low else "infiniband"
    each = re.search(r"(\d+)\s*gb(?:ps|/s)\s*/\s*gpu", low)
    many = re.search(r"(\d+)\s*x\s*(\d+)\s*gb", low)
    node = re.search(r"(\d+)\s*gbps\s*/\s*node", low)
    reference = any(word in low for word in ("dgx", "ref arch", "selene"))
    if not (each or many or node) and re.search(r"\b[nh]dr\b", low) and not reference:
        gbps = NETWORK_GBPS.get(chip.family, 100.0) / 2  # adapters are named, but not how many: one for two GPUs
    elif each:
        gbps = float(each[1])
    elif many:
        gbps = float(many[1]) * float(many[2]) / max(1, per_node)
    elif node:
        gbps = float(node[1]) / max(1, per_node)
    else:
        gbps = NETWORK_GBPS.get(chip.family, 100.0) if chip.nvlink else 12.5
    return kind, gbps / 8


def cluster_of_row(row: dict[str, str]) -> Cluster | None:
    chip = chip_of(row.get("gpu", ""))
    gpus = whole(row.get("num_gpus")) * (chip.ranks if chip else 1)
    if chip is None or gpus < 1:
        return None
    per_node = whole(row.get("gpus_per_node")) * chip.ranks or min(8, gpus)
    kind, rate = network_of(row.get("interconnect", ""), chip, per_node)
    if chip.domain <= 8 or chip.ranks > 1:
        chip = replace(chip, domain=per_node)
    return Cluster(chip, gpus, per_node, inner_link(chip, per_node), fabric(kind, rate))


def shape_of_row(row: dict[str, str]) -> ModelShape | None:
    """The row's own columns, or the catalog's shape of that name. Gating, with the norms of gated models, and tying
    follow the parameter count."""
    name = row.get("model", "")
    known = known_shape(name)
    if known is not None and known.experts:
        layers = whole(row.get("layers")) or known.layers  # benchmarks cut large mixtures to a few layers
        mtp = 0 if "w/o mtp" in name.lower() else known.mtp_layers
        return replace(known, layers=layers, dense_layers=min(known.dense_layers, layers - 1), mtp_layers=mtp)
    columns = {key: whole(row.get(key)) for key in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")}
    if not columns["hidden"] or not columns["layers"]:
        return known
    hidden = columns["hidden"]
    columns["heads"] = columns["heads"] or max(1, hidden // 128)
    columns["kv_heads"] = columns["kv_heads"] or columns["heads"]
    columns["vocab"] = columns["vocab"] or 50304
    columns["ffn"] = columns["ffn"] or 4 * hidden
    low = name.lower()
    plain = (any(w in low for w in PLAIN_MLP) or columns["ffn"] == 4 * hidden) and "swiglu" not in low
    base = ModelShape(
        name, "table", columns["layers"], hidden, columns["heads"], columns["kv_heads"], columns["ffn"],
        columns["vocab"], context=whole(row.get("seq_len"), 2048),
        activation="gelu" if plain else "swiglu",
        norm="layernorm" if plain else "rmsnorm",
        position="learned" if any(w in low for w in LEARNED) else "rope",
    )  # fmt: skip
    stated = number(row.get("params_b"))
    if not stated or "proxy" in row.get("notes", "").lower():
        return replace(base, tied=plain)
    options = [replace(base, activation=a, tied=t) for a in ("gelu", "swiglu") for t in (False, True)]
    nearest = min(
        options,
        key=lambda o: (
            abs(parameter_count(o) / 1e9 - stated) + (0 if o.activation == base.activation else 0.05 * stated)
        ),
    )
    return replace(nearest, norm="rmsnorm") if nearest.gated else nearest


def known_shape(name: str) -> ModelShape | None:
    """The known shape whose name is part of the row's; the longest such name wins. `Qwen3 MoE 30B` is qwen3-30b-a3b."""
    plain = re.sub(r"[^a-z0-9.]|moe", "", name.lower())
    active = r"-a\d+b$" if "moe" in name.lower() else r"$^"
    matches = [key for key in known_shapes() if re.sub(r"[^a-z0-9.]", "", re.sub(active, "", key)) in plain]
    return known_shapes()[max(matches, key=len)] if matches else None
