"""Writes an offer as a spec that `check`, `plan` and `submit` accept unchanged."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from trainwright.predict.search import Offer

CAPACITY = {"spot": "spot", "capacity-block": {"block": "cr-00000000000000000"}}


def spec_of(offer: Offer, tokens: float, region: str) -> dict[str, Any]:
    """The spec as plain data: queue, storage sized for the checkpoints, and the job."""
    s = offer.setup
    axes = {name: size for name, size in asdict(s.plan).items() if size != 1} or {"shard": 1}
    capacity, throughput = offer.file_system
    queue: dict[str, Any] = {"name": "train", "instance": offer.instance, "count": offer.nodes}
    if offer.kind in CAPACITY:
        queue["capacity"] = CAPACITY[offer.kind]
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
                "checkpoint": {"every": f"{offer.checkpoint_s / 60:.0f}min", "to": "/fsx/checkpoints"},
                "data": "/fsx/data",
            }
        ],
    }


def _cluster_name(model: str) -> str:
    """A valid cluster name from a model's name or the path of its configuration."""
    word = Path(model).resolve().parent.name if model.endswith(".json") else Path(model).name if "/" in model else model
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") or "model"


def text_of(offer: Offer, tokens: float, region: str) -> str:
    block = "# Bought as a capacity block: replace cr-00000000000000000 by the id of yours.\n"
    return (block if offer.kind == "capacity-block" else "") + yaml.safe_dump(
        spec_of(offer, tokens, region), sort_keys=False
    )
