"""A profile in words, and beside its prediction: which term of the step is slower than predicted, and by how much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.predict.prediction import COMMUNICATION
from trainwright.predict.render import seconds
from trainwright.predict.trace import Profile

SUMMARY = "summary.json"  # in the profile folder of a run
# Term -> the prediction's parts that it is compared with. Products of the head and of what is computed again are
# products in a trace too.
TERMS: dict[str, tuple[str, ...]] = {
    "matrix products": ("products", "head", "recompute"),
    "attention": ("attention",),
    "elementwise": ("elementwise", "offload"),  # a copy that nothing hides is counted here
    "optimizer": ("optimizer",),
    "exposed communication": (*COMMUNICATION, "stragglers"),
    "data wait": (),
    "idle": ("fixed", "bubble", "imbalance"),
}
LARGE = 0.05  # share of a step that is worth a sentence
SHOWN = 8  # kernels
ADVICE = {
    "exposed communication": "a larger micro-batch between collectives, or a plan whose collectives stay inside nodes",
    "data wait": "more loader workers, or data on a faster file system (`trainwright bench loader`)",
    "idle": "the host cannot launch kernels fast enough: --compile, a larger micro-batch, fewer small operators",
    "elementwise": "kernels that are not fused: --compile",
    "optimizer": "a fused optimizer, or fewer parameters per GPU (a larger shard)",
}


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the step. `predicted` is None without a prediction."""

    name: str
    measured_s: float
    predicted_s: float | None = None

    @property
    def difference_s(self) -> float:
        return self.measured_s - (self.predicted_s or 0.0)


def measured_terms(profile: Profile) -> dict[str, float]:
    """Seconds per step of each term; they add up to the step."""
    compute = profile.compute
    return {
        "matrix products": compute["products"],
        "attention": compute["attention"],
        "elementwise": compute["elementwise"] + compute["copies"],
        "optimizer": compute["optimizer"],
        "exposed communication": profile.exposed_s,
        "data wait": profile.data_wait_s,
        "idle": profile.idle_s,
    }


def compare(profile: Profile, prediction: Mapping[str, Any] | None) -> list[Term]:
    """The terms of a profile, beside those of a `prediction.json` where there is one."""
    parts = (prediction or {}).get("parts")
    terms = []
    for name, seconds_measured in measured_terms(profile).items():
        predicted = sum(float(parts.get(part, 0.0)) for part in TERMS[name]) if isinstance(parts, dict) else None
        predicted = None if predicted is None else max(predicted, 0.0)  # rounding leaves tiny negative ones
        terms.append(Term(name, seconds_measured, predicted))
    return terms


def in_words(profile: Profile, terms: list[Term], prediction: Mapping[str, Any] | None = None) -> list[str]:
    """The summary: one line per thing worth knowing."""
    share = {term.name: term.measured_s / profile.step_s for term in terms}
    computing = sum(share[name] for name in ("matrix products", "attention", "elementwise", "optimizer"))
    lines = [
        f"rank {profile.rank} of {profile.ranks}, {profile.steps} steps of {seconds(profile.step_s)} on a "
        f"{'GPU' if profile.device == 'cuda' else 'CPU'}: {computing:.0%} compute, "
        f"{share['exposed communication']:.0%} exposed communication, {share['data wait']:.0%} waiting for data, "
        f"{share['idle']:.0%} idle (longest gap {seconds(profile.largest_gap_s)})"
    ]
    if profile.overlap is not None:
        total = profile.exposed_s + profile.hidden_s
        lines.append(f"communication takes {seconds(total)} per step; {profile.overlap:.0%} of it runs behind compute")
        lines += _predicted_overlap(prediction)
    for name, advice in ADVICE.items() if profile.device == "cuda" else ():
        if share[name] > LARGE * (1 if name in ("exposed communication", "data wait") else 4):
            lines.append(f"{name} is {share[name]:.0%} of the step: {advice}")
    return lines + _differences(profile, terms, prediction)


def _predicted_overlap(prediction: Mapping[str, Any] | None) -> list[str]:
    exposed, hidden = ((prediction or {}).get(f"{kind}_communication_s") for kind in ("exposed", "hidden"))
    if exposed is None or hidden is None or not exposed + hidden:
        return []
    return [f"predicted were {seconds(exposed + hidden)}, {hidden / (exposed + hidden):.0%} of it behind compute"]


def _differences(profile: Profile, terms: list[Term], prediction: Mapping[str, Any] | None) -> list[str]:
    step = (prediction or {}).get("step_time_s")
    if not step or any(term.predicted_s is None for term in terms):
        return []
    away = profile.step_s / float(step) - 1
    large = [term for term in terms if abs(term.difference_s) > LARGE * float(step)]
    reasons = ", ".join(
        f"{term.name} {'+' if term.difference_s > 0 else '-'}{seconds(abs(term.difference_s))}"
        for term in sorted(large, key=lambda term: -abs(term.difference_s))
    )
    verb = "slower" if away > 0 else "faster"
    line = f"a step is {abs(away):.0%} {verb} than the predicted {seconds(float(step))}"
    return [f"{line}: {reasons}" if reasons else line]


def record(profiles: list[Profile], prediction: Mapping[str, Any] | None) -> dict[str, Any]:
    """Plain data of all profiled ranks, for `--json`, the run's folder and `predict --calibrate`."""
    rows = []
    for profile in profiles:
        terms = compare(profile, prediction)
        row = {**asdict(profile), "kernels": [asdict(kernel) for kernel in profile.kernels[:SHOWN]]}
        facts = {"overlap": profile.overlap, "terms": [asdict(term) for term in terms]}
        rows.append({**row, **facts, "words": in_words(profile, terms, prediction)})
    return {"ranks": rows}


def calibration_terms(folder: Path) -> dict[str, float]:
    """The measured terms of a run that was profiled on GPUs, the mean over its ranks; empty without a profile."""
    try:
        rows = json.loads((folder / "profile" / SUMMARY).read_text(encoding="utf-8"))["ranks"]
    except (OSError, ValueError, KeyError):
        return {}
    rows = [row for row in rows if row["device"] == "cuda"]
    terms: dict[str, float] = {}
    for row in rows:
        for term in row["terms"]:
            terms[term["name"]] = terms.get(term["name"], 0.0) + term["measured_s"] / len(rows)
    return terms
