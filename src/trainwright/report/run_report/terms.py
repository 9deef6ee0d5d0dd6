"""Predicted beside measured, quantity by quantity: the distance, whether it is within the interval, and what explains
it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.report.run_report.folder import Steps
from trainwright.report.run_report.model import Status, Term
from trainwright.train.expectation import likely_cause

MEMORY = 0.1  # predicted memory differs from published memory by about a tenth
GOODPUT = 0.05  # of the time
SHORT = 600.0  # seconds: of less, starting up is a large part, and says nothing about a long run
GIB = 2**30
NO_PREDICTION = "nothing was predicted for this run"


@dataclass(frozen=True)
class Measured:
    """What a run did, in the words of a prediction. None: not known."""

    step_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    memory_gib: float | None
    stall_s: float | None
    goodput: float | None
    restarts: int
    lost_s: float  # seconds since the first start that went into no step that counts
    elapsed_s: float  # since the first start
    cpu: bool
    straggler: str = ""


def measure(steps: Steps, events: Sequence[Mapping[str, Any]], straggler: str = "") -> Measured:
    """Medians without the first step, which warms up."""
    stalls = [float(event["stall_s"]) for event in events if event.get("event") == "save" and "stall_s" in event]
    memory = steps.values("memory_gb")
    starts = [event for event in events if event.get("event") == "start"]
    goodput, times = steps.last("goodput"), steps.values("time")
    elapsed = times[-1] - float(starts[0]["time"]) if times and starts else 0.0
    versions = starts[-1].get("versions", {}) if starts else {}
    return Measured(
        step_s=_usual(steps.values("step_s")),
        tokens_per_s=_usual(steps.values("tokens_per_s")),
        mfu=_usual(steps.values("mfu")),
        memory_gib=max(memory) * 1e9 / GIB if memory else None,
        stall_s=statistics.median(stalls) if stalls else None,
        goodput=goodput,
        restarts=max(0, len(starts) - 1),
        lost_s=max(0.0, elapsed * (1 - goodput)) if goodput is not None else 0.0,
        elapsed_s=elapsed,
        cpu="gpu" not in versions and not steps.values("mfu"),
        straggler=straggler,
    )


def _usual(values: Sequence[float]) -> float | None:
    return statistics.median(values[1:] or values) if values else None


def terms(prediction: Mapping[str, Any], did: Measured, steps: Steps, rates: Sequence[Term] = ()) -> tuple[Term, ...]:
    """Every quantity in the order of the page; `rates` are the bandwidths that benches measured."""
    known = "tokens_per_s" in prediction
    why = _explained(prediction, did, steps) if known else ""
    return (
        _step_time(prediction, did, why) if known else _only("step time", "s", did.step_s),
        _speed(prediction, did, why) if known else _only("tokens/s", "tokens/s", did.tokens_per_s),
        _mfu(prediction, did) if known else _only("MFU", "%", did.mfu),
        _memory(prediction, did) if known else _only("memory", "GiB", did.memory_gib),
        *(rates or (Term("bandwidth", "GB/s", None, None, why="no bench of the collectives is with this run"),)),
        _stall(prediction, did),
        _cost(prediction, did),
        _goodput(prediction, did),
    )


def _only(name: str, unit: str, measured: float | None) -> Term:
    return Term(name, unit, None, measured, why=NO_PREDICTION if measured is not None else "not logged")


def compared(
    name: str, unit: str, predicted: float, measured: float | None,
    interval: tuple[float, float] | None, why: str = "", more_is_better: bool = False,
) -> Term:  # fmt: skip
    """A term with its status: inside the interval is pass, better than it warn (the prediction is off), worse fail."""
    low, high = interval or (None, None)
    if measured is None:
        return Term(name, unit, predicted, None, low, high, why="not measured")
    distance = measured / predicted - 1 if predicted else None
    status: Status = "pass"
    if low is not None and high is not None and not low <= measured <= high:
        status = "warn" if (measured > high) == more_is_better else "fail"
    return Term(name, unit, predicted, measured, low, high, distance, status, why)


def _step_time(prediction: Mapping[str, Any], did: Measured, why: str) -> Term:
    predicted, rate = float(prediction["step_time_s"]), float(prediction["tokens_per_s_per_gpu"])
    interval = (predicted * rate / float(prediction["high"]), predicted * rate / float(prediction["low"]))
    return compared("step time", "s", predicted, did.step_s, interval, why)


def _speed(prediction: Mapping[str, Any], did: Measured, why: str) -> Term:
    gpus = int(prediction["gpus"])
    interval = (float(prediction["low"]) * gpus, float(prediction["high"]) * gpus)
    return compared("tokens/s", "tokens/s", float(prediction["tokens_per_s"]), did.tokens_per_s, interval, why, True)


def _explained(prediction: Mapping[str, Any], did: Measured, steps: Steps) -> str:
    predicted = float(prediction["step_time_s"])
    if did.step_s is None:
        return "the log does not say how long a step takes"
    if did.step_s <= predicted:
        return did.straggler or _faster(prediction, did.step_s)
    cause, why = likely_cause(list(steps.rows("step_s", "data_wait_s", "checkpoint_stall_s")), predicted, did.straggler)
    return f"{cause}: {why}"


def _faster(prediction: Mapping[str, Any], step_s: float) -> str:
    fastest = float(prediction["step_time_s"]) * float(prediction["tokens_per_s_per_gpu"]) / float(prediction["high"])
    if step_s < fastest:
        return "faster than predicted: the prediction is too low for this machine"
    return "no wait and no straggler slowed it down"


def _mfu(prediction: Mapping[str, Any], did: Measured) -> Term:
    predicted = float(prediction["mfu"])
    if did.mfu is None:
        return Term("MFU", "%", predicted, None, why="the peak of this device is not known, so no share of it either")
    rate = float(prediction["tokens_per_s_per_gpu"])
    interval = (predicted * float(prediction["low"]) / rate, predicted * float(prediction["high"]) / rate)
    return compared("MFU", "%", predicted, did.mfu, interval, "follows the step time", True)


def _memory(prediction: Mapping[str, Any], did: Measured) -> Term:
    predicted = float(prediction["memory_gib"])
    if did.cpu and did.memory_gib is not None:
        why = "predicted: weights, gradients and optimizer; measured: the whole process, with Python and torch"
        return Term("memory", "GiB", predicted, did.memory_gib, why=why)
    interval = (predicted * (1 - MEMORY), predicted * (1 + MEMORY))
    limit = float(prediction.get("memory_limit_gib") or 0)
    return compared("memory", "GiB", predicted, did.memory_gib, interval, f"of {limit:.0f} GiB per GPU")


def _stall(prediction: Mapping[str, Any], did: Measured) -> Term:
    stall = (prediction.get("goodput") or {}).get("stall_s")
    if not stall:
        return Term("checkpoint stall", "s", None, did.stall_s, why="not predicted on this machine's CPU")
    interval = (0.0, float(stall) * 1.5)
    why = "a step waits while its state is copied to host memory"
    return compared("checkpoint stall", "s", float(stall), did.stall_s, interval, why)


def _cost(prediction: Mapping[str, Any], did: Measured) -> Term:
    bill = prediction.get("cost")
    name, unit = "cost", "$ per trillion tokens"
    if not bill:
        return Term(name, unit, None, None, why="these nodes have no price")
    kept = (did.tokens_per_s or 0.0) * (did.goodput or 1.0)
    measured = float(bill["usd_hour"]) / 3600 / kept * 1e12 if kept else None
    predicted, rate = float(bill["usd_per_trillion_tokens"]), float(prediction["tokens_per_s_per_gpu"])
    interval = (predicted * rate / float(prediction["high"]), predicted * rate / float(prediction["low"]))
    why = f"${bill['usd_hour']:,.2f} per hour ({bill['kind']}, {bill['region']}, prices of {bill['date']})"
    return compared(name, unit, predicted, measured, interval, why)


def _goodput(prediction: Mapping[str, Any], did: Measured) -> Term:
    predicted = (prediction.get("goodput") or {}).get("effective")
    times = f"{did.restarts} restart{'s' if did.restarts != 1 else ''}"
    why = f"{times}; {did.lost_s:,.0f} s were spent outside the steps that count"
    if did.goodput is None:
        why = "not logged"
    if predicted is None:
        return Term("goodput", "%", None, did.goodput, why=why)
    if did.goodput is not None and not did.restarts and did.elapsed_s < SHORT:
        why = f"too short to judge: {did.lost_s:,.0f} s of {did.elapsed_s:,.0f} s were spent outside the steps"
        return Term("goodput", "%", float(predicted), did.goodput, why=why)
    interval = (float(predicted) - GOODPUT, 1.0)
    return compared("goodput", "%", float(predicted), did.goodput, interval, why, True)
