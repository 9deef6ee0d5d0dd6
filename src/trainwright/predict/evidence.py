"""How far a prediction can be trusted: its 80 % interval, and which properties of a job no published row has."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.predict.hardware import device
from trainwright.predict.setup import Setup

# Half widths of the 80 % interval, in log space, by benchmarks/predict_accuracy.py --leave-out: BASE covers rows whose
# neighbours were in the fit, the others what a row adds to that where the fit has not seen its like.
BASE = 0.075
NEW_SOURCE = "no run of this cluster was seen; `predict --calibrate` narrows the interval"
UNMEASURED = "preference pairs, of which no run was measured"
UNTRIED = "context parallelism by gather or all-to-all, which no published row has"
SCALES = "a float8 recipe that was not measured with this trainer and generation of GPUs"
WIDER = {
    SCALES: 0.15,
    NEW_SOURCE: 0.08,
    "no published row of this trainer": 0.03,
    "no published row of this trainer on this accelerator": 0.03,
    "no published row with this precision on this generation": 0.08,
    "no published row on this accelerator": 0.12,
    "a trainer whose kernels are not known": 0.2,
    "4-bit training": 0.04,
    "a Blackwell accelerator, whose software is still changing": 0.04,
    "context parallelism with unequal shares of the causal mask": 0.10,
    UNTRIED: 0.05,
    "a mixture of experts": 0.20,
    "a model that is not a decoder": 0.20,
    "Neuron: the published runs scatter": 0.40,
    "a pipeline": 0.02,
    "only adapters trained": 0.15,
    UNMEASURED: 0.15,
    "weights sharded over more ranks than in any published row": 0.15,
    "more GPUs than any published row": 0.15,
    "sequences longer than any published row": 0.15,
    "a model smaller than any published row": 0.25,
    "a step under 50 ms, which the host's launch rate may limit": 0.25,
}
MOST_SHARDS = 512
MOST_GPUS = 16_384
LONGEST = 262_144
Kind = tuple[str, str, str]  # trainer profile, accelerator, precision


@cache
def _evidence() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("evidence.toml").read_text(encoding="utf-8"))


def published_sources() -> frozenset[str]:
    return frozenset(_evidence()["sources"])


def kind_of(s: Setup) -> Kind:
    return s.profile.name, s.cluster.device.name, s.precision


@cache
def published_kinds() -> frozenset[Kind]:
    """Trainer, accelerator and precision of every row that the shipped constants were fitted to."""
    return frozenset((trainer, chip, precision) for trainer, chip, precision in _evidence()["kinds"])


def outside(s: Setup, step: float, seen: Collection[Kind] | None = None, new_source: bool = True) -> list[str]:
    """The reasons of WIDER that apply to this job. `seen`: the kinds of rows behind the constants; `new_source`: no row
    is from the same publication or cluster."""
    known = published_kinds() if seen is None else seen
    rules = {
        NEW_SOURCE: new_source,
        "a trainer whose kernels are not known": s.profile.name in ("torch", "torch-compiled"),
        "4-bit training": s.precision == "fp4",
        "a Blackwell accelerator, whose software is still changing": s.cluster.device.family == "sm_100",
        "context parallelism with unequal shares of the causal mask": s.plan.cp > 1 and not s.profile.balanced_context,
        UNTRIED: s.plan.cp > 1 and s.context != "ring",
        "a mixture of experts": bool(s.shape.experts),
        "Neuron: the published runs scatter": s.cluster.device.family == "neuroncore",
        "a model that is not a decoder": s.shape.kind != "decoder",
        "a pipeline": s.plan.pp > 1,
        "only adapters trained": s.frozen,
        SCALES: bool(s.float8) and not measured_recipe(s),
        UNMEASURED: s.objective.name == "dpo",
        "weights sharded over more ranks than in any published row": s.zero >= 2 and s.plan.shard > MOST_SHARDS,
        "more GPUs than any published row": s.cluster.gpus > MOST_GPUS,
        "sequences longer than any published row": s.batch.sequence > LONGEST,
        "a model smaller than any published row": s.shape.hidden < 512,
        "a step under 50 ms, which the host's launch rate may limit": step < 0.05,
    }
    return [*(reason for reason, holds in rules.items() if holds), *unseen(kind_of(s), s.cluster.device.family, known)]


def measured_recipe(s: Setup) -> bool:
    """Whether runs of our trainer with these scales, on that generation, are in benchmarks/data/h200_trainer.csv."""
    return s.profile.own and s.cluster.device.family == "sm_90" and s.float8 in ("rowwise", "blockwise")


def unseen(kind: Kind, family: str, known: Collection[Kind]) -> list[str]:
    """What of a job's trainer, accelerator and precision is not among the known rows."""
    trainer, chip, precision = kind
    reasons = []
    if all(k[0] != trainer for k in known):
        reasons.append("no published row of this trainer")
    elif all(k[:2] != (trainer, chip) for k in known):
        reasons.append("no published row of this trainer on this accelerator")
    if all(k[1] != chip for k in known):
        reasons.append("no published row on this accelerator")
    elif all(k[2] != precision or device(k[1]).family != family for k in known):
        reasons.append("no published row with this precision on this generation")
    return reasons


def half_width(reasons: list[str]) -> float:
    """Independent uncertainties add as squares."""
    return math.sqrt(BASE**2 + sum(WIDER[reason] ** 2 for reason in reasons))


def interval(rate: float, s: Setup, step: float, new_source: bool = True) -> tuple[float, float]:
    """(low, high) of tokens/s: the 80 % interval."""
    width = half_width(outside(s, step, new_source=new_source))
    return rate * math.exp(-width), rate * math.exp(width)
