"""How far a prediction can be trusted: its 80 % interval, and which properties of a job no published row has."""

from __future__ import annotations

import math

from trainwright.predict.setup import Setup

# Half widths of the 80 % interval, in log space. `BASE` covers 80 % of the published rows whose trainer is known; the
# others widen the interval where the rows scatter more. benchmarks/predict_accuracy.py reports the coverage.
BASE = 0.095
WIDER = {
    "an accelerator without published training rows": 0.20,
    "a trainer whose kernels are not known": 0.15,
    "4-bit training": 0.04,
    "a Blackwell accelerator, whose software is still changing": 0.03,
    "context parallelism with unequal shares of the causal mask": 0.10,
    "a mixture of experts": 0.30,
    "a model that is not a decoder": 0.20,
    "a pipeline": 0.02,
    "only adapters trained": 0.08,
    "more GPUs than any published row": 0.10,
    "sequences longer than any published row": 0.15,
    "a model smaller than any published row": 0.25,
    "a step under 50 ms, which the host's launch rate may limit": 0.25,
}
PUBLISHED = {"h100", "h200", "a100-80", "a100-40", "b200", "gb200", "gb300", "b300", "v100", "a800-80", "h800"}
MOST_GPUS = 16_384
LONGEST = 262_144


def outside(s: Setup, step: float) -> list[str]:
    """The reasons of WIDER that apply to this job."""
    reasons = []
    if s.cluster.device.name not in PUBLISHED:
        reasons.append("an accelerator without published training rows")
    if s.profile.name in ("torch", "torch-compiled"):
        reasons.append("a trainer whose kernels are not known")
    if s.precision == "fp4":
        reasons.append("4-bit training")
    if s.cluster.device.family == "sm_100":
        reasons.append("a Blackwell accelerator, whose software is still changing")
    if s.plan.cp > 1 and not s.profile.balanced_context:
        reasons.append("context parallelism with unequal shares of the causal mask")
    if s.shape.experts:
        reasons.append("a mixture of experts")
    if s.shape.kind != "decoder":
        reasons.append("a model that is not a decoder")
    if s.plan.pp > 1:
        reasons.append("a pipeline")
    if s.frozen:
        reasons.append("only adapters trained")
    if s.cluster.gpus > MOST_GPUS:
        reasons.append("more GPUs than any published row")
    if s.batch.sequence > LONGEST:
        reasons.append("sequences longer than any published row")
    if s.shape.hidden < 512:
        reasons.append("a model smaller than any published row")
    if step < 0.05:
        reasons.append("a step under 50 ms, which the host's launch rate may limit")
    return reasons


def half_width(reasons: list[str]) -> float:
    """Independent uncertainties add as squares."""
    return math.sqrt(BASE**2 + sum(WIDER[reason] ** 2 for reason in reasons))


def interval(rate: float, s: Setup, step: float) -> tuple[float, float]:
    """(low, high) of tokens/s: the 80 % interval."""
    width = half_width(outside(s, step))
    return rate * math.exp(-width), rate * math.exp(width)
