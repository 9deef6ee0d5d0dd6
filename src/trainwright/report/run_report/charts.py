"""The curves of a run, made small for a page, and the parts of its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.predict.render import LABELS
from trainwright.report.run_report.folder import Steps
from trainwright.report.run_report.model import Chart, Line, Share
from trainwright.report.run_report.series import kept_points
from trainwright.report.run_report.words import profile_ranks

CURVES: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("loss", "Loss", "", (("loss", "training loss"), ("eval_loss", "evaluation loss"))),
    ("speed", "Throughput", "tokens/s", (("tokens_per_s", "tokens per second"),)),
    ("samples", "Samples per second", "samples/s", (("samples_per_s", "samples per second"),)),
    ("norm", "Gradient norm", "", (("grad_norm", "gradient norm before clipping"),)),
    ("step", "Step time", "s", (
        ("step_s", "step"), ("data_wait_s", "waiting for data"), ("checkpoint_stall_s", "waiting for a checkpoint"),
    )),
    ("lr", "Learning rate", "", (("lr", "learning rate"),)),
    ("memory", "Peak memory", "GB", (("memory_gb", "peak memory"),)),
)  # fmt: skip
DIGITS = 6


def charts_of(steps: Steps, prediction: Mapping[str, Any]) -> tuple[Chart, ...]:
    """A chart for each quantity that the run logged."""
    made = []
    for name, title, unit, columns in CURVES:
        known = [(column, label) for column, label in columns if len(steps.values(column)) > 1]
        if not known or (name == "samples" and steps.values("tokens_per_s")):
            continue
        chart = chart_of(name, title, unit, steps, known)
        made.append(_with_prediction(chart, prediction) if name == "speed" else chart)
    return tuple(made)


def chart_of(name: str, title: str, unit: str, steps: Steps, columns: Sequence[tuple[str, str]]) -> Chart:
    series = [steps.columns[column] for column, _ in columns]
    kept = kept_points(series)
    x = tuple(steps.columns["step"][at] or 0.0 for at in kept)
    lines = tuple(Line(label, tuple(_short(steps.columns[column][at]) for at in kept)) for column, label in columns)
    return Chart(name, title, unit, "step", x, lines, len(steps))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _with_prediction(chart: Chart, prediction: Mapping[str, Any]) -> Chart:
    if "tokens_per_s" not in prediction:
        return chart
    gpus, rate = int(prediction["gpus"]), float(prediction["tokens_per_s"])
    band = (float(prediction["low"]) * gpus, float(prediction["high"]) * gpus)
    line = Line("predicted", tuple(_short(rate) for _ in chart.x), dashed=True)
    return Chart(chart.id, chart.title, chart.unit, chart.x_label, chart.x, (*chart.lines, line), chart.points, band)


def shares_of(steps: Steps, prediction: Mapping[str, Any], profile: Mapping[str, Any]) -> tuple[Share, ...]:
    """Where the step goes: each predicted part, and what the run measured of its own step; a profile knows more."""
    measured = {name: _mean(steps, name) for name in ("step_s", "data_wait_s", "checkpoint_stall_s")}
    predicted = [
        Share(LABELS.get(name, name), float(seconds), None)
        for name, seconds in (prediction.get("parts") or {}).items()
        if seconds
    ]
    for row in profile_ranks(profile)[:1]:
        terms = [term for term in row.get("terms") or () if isinstance(term.get("measured_s"), int | float)]
        if terms:
            return (*predicted, *(Share(str(t["name"]), t.get("predicted_s"), float(t["measured_s"])) for t in terms))
    step, data, stall = measured.values()
    if step is None:
        return tuple(predicted)
    work = step - (data or 0.0) - (stall or 0.0)
    total = float(prediction["step_time_s"]) if "step_time_s" in prediction else None
    return (
        *predicted,
        Share("compute and communication", total, max(0.0, work)),
        Share("waiting for data", 0.0 if total is not None else None, data),
        Share("waiting for checkpoints", None, stall),
    )


def _mean(steps: Steps, name: str) -> float | None:
    values = steps.values(name)
    values = values[1:] or values
    return sum(values) / len(values) if values else None
