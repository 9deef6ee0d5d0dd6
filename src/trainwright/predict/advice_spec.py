"""Writes an offer as a spec that `check`, `plan` and `submit` accept unchanged."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from trainwright.catalog.models import find_model
from trainwright.predict.search import Offer, whole_steps
from trainwright.train.models.shape import DEBUG, ModelShape, shapes
from trainwright.train.parallel.plan import CONTEXTS

PLATFORMS = ("parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks")
CAPACITY: dict[str, Any] = {"spot": "spot", "capacity-block": {"block": "cr-00000000000000000"}}
RUN_IMAGES = ("eks", "batch", "hyperpod-eks")
IMAGE = "registry.example.com/trainwright:0.1.0"
TRAINING_PLAN = "arn:aws:sagemaker:{region}:000000000000:training-plan/my-plan"


def no_spec_reason(shape: ModelShape) -> str:
    """Why an offer for this model cannot be written as a spec, which our trainer runs; empty where it can."""
    if shape.experts:
        return "offers for a mixture of experts are predicted for Megatron"
    if find_model(shape.name) is not None and shape.name.removesuffix(DEBUG) not in shapes():
        return f"{shape.name} is known by its published shape only, our trainer does not have it"
    return ""


def spec_of(offer: Offer, tokens: float, region: str, platform: str = "parallelcluster") -> dict[str, Any]:
    """The spec as plain data: queue, storage sized for the checkpoints, and the job."""
    s = offer.setup
    axes = {name: size for name, size in asdict(s.plan).items() if size != 1} or {"shard": 1}
    capacity, throughput = offer.file_system
    queue: dict[str, Any] = {"name": "train", "instance": offer.instance, "count": offer.nodes}
    if offer.kind == "capacity-block" and platform.startswith("hyperpod"):
        queue["capacity"] = {"plan": TRAINING_PLAN.format(region=region)}  # what HyperPod has in its place
    elif offer.kind in CAPACITY:
        queue["capacity"] = CAPACITY[offer.kind]
    return {
        "name": f"{_cluster_name(s.shape.name)}-advised",
        "platform": platform,
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
                "steps": whole_steps(tokens, s),
                "checkpoint": {"every": f"{offer.checkpoint_s / 60:.0f}min", "to": "/fsx/checkpoints"},
                "data": "/fsx/data",
                **({"args": ["--context", s.context]} if s.plan.cp > 1 and s.context != CONTEXTS[0] else {}),
                **({"container": IMAGE} if platform in RUN_IMAGES else {}),
            }
        ],
    }


def _cluster_name(model: str) -> str:
    """A valid cluster name from a model's name or the path of its configuration."""
    word = Path(model).resolve().parent.name if model.endswith(".json") else Path(model).name if "/" in model else model
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") or "model"


def text_of(offer: Offer, tokens: float, region: str, platform: str = "parallelcluster") -> str:
    lines = []
    if offer.kind == "capacity-block" and platform.startswith("hyperpod"):
        lines.append("# Bought as a training plan, the capacity block of SageMaker: replace its ARN by that of yours.")
    elif offer.kind == "capacity-block":
        lines.append("# Bought as a capacity block: replace cr-00000000000000000 by the id of yours.")
    if platform in RUN_IMAGES:
        lines.append(f"# Jobs run in an image: replace {IMAGE} by yours (`trainwright image` builds one).")
    return "".join(f"{line}\n" for line in lines) + yaml.safe_dump(
        spec_of(offer, tokens, region, platform), sort_keys=False
    )
