"""Writes an offer as a spec that `check`, `plan` and `submit` accept unchanged."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from trainwright.predict.needs import data_needs
from trainwright.predict.search import Offer

MB_PER_TIB = (125, 250, 500, 1000)
TIB_STEP = 2.4
READ_GB_S = 0.015  # per GPU, below which `check` warns that GPUs may wait for data (STO003)


def spec_of(offer: Offer, tokens: float, region: str) -> dict[str, Any]:
    """The spec as plain data: queue, storage sized for the checkpoints, and the job."""
    s = offer.setup
    axes = {name: size for name, size in asdict(s.plan).items() if size != 1} or {"shard": 1}
    needs = data_needs(s, offer.tokens_per_s, 900.0)
    capacity, throughput = lustre(max(needs.write_gb_s, READ_GB_S * offer.gpus), needs.checkpoint_gb)
    queue: dict[str, Any] = {"name": "train", "instance": offer.instance, "count": offer.nodes}
    if offer.kind == "spot":
        queue["capacity"] = "spot"
    return {
        "name": f"{_cluster_name(s.shape.name)}-advised",
        "platform": "parallelcluster",
        "region": region,
        "queues": [queue],
        "storage": [{"mount": "/fsx", "lustre": {"capacity": f"{capacity:g}TiB", "throughput": throughput}}],
        "jobs": [
            {
                "name": "pretrain",
                "model": s.shape.name,
                "queue": "train",
                "nodes": offer.nodes,
                "parallel": axes,
                "batch": {"sequences": s.batch.sequences(s.plan), "micro_batch": s.batch.micro},
                "sequence": s.batch.sequence,
                "precision": s.precision,
                "recompute": s.recompute,
                "steps": max(1, round(tokens / s.tokens)),
                "checkpoint": {"every": "15min", "to": "/fsx/checkpoints"},
                "data": "/fsx/data",
            }
        ],
    }


def _cluster_name(model: str) -> str:
    """A valid cluster name from a model's name or the path of its configuration."""
    word = Path(model).resolve().parent.name if model.endswith(".json") else Path(model).name if "/" in model else model
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") or "model"


def lustre(write_gb_s: float, checkpoint_gb: float) -> tuple[float, int]:
    """The smallest file system that holds three checkpoints and writes one in time: (TiB, MB/s per TiB)."""
    size = max(1, -(-3 * checkpoint_gb / 1100 // TIB_STEP)) * TIB_STEP
    for throughput in MB_PER_TIB:
        if size * throughput / 1e3 >= write_gb_s:
            return size, throughput
    return -(-write_gb_s // (MB_PER_TIB[-1] / 1e3 * TIB_STEP)) * TIB_STEP, MB_PER_TIB[-1]


def text_of(offer: Offer, tokens: float, region: str) -> str:
    block = "# Bought as a capacity block: give the queue its id, as capacity: {block: cr-...}\n"
    return (block if offer.kind == "capacity-block" else "") + yaml.safe_dump(
        spec_of(offer, tokens, region), sort_keys=False
    )
