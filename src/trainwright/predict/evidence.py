"""How far a prediction can be trusted: the interval around it, and what about a job lies outside the published rows."""

from __future__ import annotations

import math

from trainwright.predict.setup import Setup

# Half widths of the interval in log space. `BASE` covers four in five of the published rows whose stack is known; the
# others widen it where the rows themselves scatter more. benchmarks/predict_accuracy.py reports the coverage.
BASE = 0.095
WIDER = {
    "an accelerator without published training rows": 0.20,
    "a trainer whose kernels are not known": 0.15,
    "4-bit training": 0.04,
    "a Blackwell accelerator, whose software still changes": 0.03,
    "context parallelism over unequal parts": 0.10,
    "a mixture of experts": 0.30,
    "a model that is not a decoder": 0.20,
    "a pipeline": 0.02,
    "only adapters trained": 0.08,
    "more GPUs than any published row": 0.10,
    "sequences longer than any published row": 0.15,
    "a model smaller than any published row": 0.25,
    "a step under 50 ms, where the host sets the pace": 0.25,
}
PUBLISHED = {"h100", "h200", "a100-80", "a100-40", "b200", "gb200", "gb300", "b300", "v100", "a800-80", "h800"}
MOST_GPUS = 16_384
LONGEST = 262_144


def outside(s: Setup, step: float) -> list[str]:
    """The reasons, of WIDER, that apply to this job."""
    found = []
    if s.cluster.device.name not in PUBLISHED:
        found.append("an accelerator without published training rows")
    if s.profile.name in ("torch", "torch-compiled"):
        found.append("a trainer whose kernels are not known")
    if s.precision == "fp4":
        found.append("4-bit training")
    if s.cluster.device.family == "sm_100":
        found.append("a Blackwell accelerator, whose software still changes")
    if s.plan.cp > 1 and not s.profile.balanced_context:
        found.append("context parallelism over unequal parts")
    if s.shape.experts:
        found.append("a mixture of experts")
    if s.shape.kind != "decoder":
        found.append("a model that is not a decoder")
    if s.plan.pp > 1:
        found.append("a pipeline")
    if s.frozen:
        found.append("only adapters trained")
    if s.cluster.gpus > MOST_GPUS:
        found.append("more GPUs than any published row")
    if s.batch.seq > LONGEST:
        found.append("sequences longer than any published row")
    if s.shape.hidden < 512:
        found.append("a model smaller than any published row")
    if step < 0.05:
        found.append("a step under 50 ms, where the host sets the pace")
    return found


def half_width(reasons: list[str]) -> float:
    """Independent doubts add as squares."""
    return math.sqrt(BASE**2 + sum(WIDER[reason] ** 2 for reason in reasons))


def interval(rate: float, s: Setup, step: float) -> tuple[float, float]:
    """(low, high) of tokens a second, meant to hold four measurements in five."""
    width = half_width(outside(s, step))
    return rate * math.exp(-width), rate * math.exp(width)
