"""Fits the predictor to a user's own runs: the few constants that a run informs move from their shipped values, the
others stay. The result is kept in the user's settings."""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass, fields
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.files import read_regular
from trainwright.predict.constants import Constants, constants
from trainwright.predict.setup import Setup
from trainwright.predict.setup_record import from_record
from trainwright.predict.step import step_time

SUSTAINED = {
    "sm_80": "matmul_sustained_ampere",
    "sm_90": "matmul_sustained_hopper",
    "sm_100": "matmul_sustained_blackwell",
}
# Constants a run may move beside the matmul rate, and how uncertain published rows leave each (one sigma, log space).
SHARED = {"overlap_contention": 0.5, "step_fixed": 0.5, "tp_overlap_hidden": 0.3, "alltoall_exposed": 0.3}
SUSTAINED_SIGMA = 0.06
NOISE = 0.01  # of a run's measured speed, in log space
SMALL = 0.005  # a change below this share is not kept
FAR = 2.0  # sigmas beyond which a value contradicts the published rows
LOCAL = "local_pace"
WARM_UP = 0.2  # share of a run's lines, at its start, that is ignored


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its setup (None on this machine's CPU), the predicted and the measured speed."""

    setup: Setup | None
    predicted_tokens_per_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """One constant that was fitted, and the mean error on its runs before and after."""

    name: str
    before: float
    after: float
    error_before: float
    error_after: float
    runs: int
    sigmas: float = 0.0  # how far the value is from what published rows give


def settings_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "trainwright" / "predict.json"


def overrides() -> dict[str, float]:
    """What the user's settings say; a file that somebody edited into something else is a UserError."""
    path = settings_file()
    if not path.exists():
        return {}
    try:
        values = json.loads(read_regular(path))
    except ValueError as error:
        raise _broken(path, f"the predictor's settings are not JSON: {error}") from error
    if not isinstance(values, dict):
        raise _broken(path, "the predictor's settings are not a JSON object")
    known = [LOCAL, *(field.name for field in fields(Constants) if field.name not in ("traffic", "attention"))]
    for name, value in values.items():
        if name not in known:
            raise _broken(path, f"the predictor has no constant {name!r}", did_you_mean(name, known))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):
            raise _broken(path, f"{name} is {value!r}, not a number above 0")
    return values


def _broken(path: Path, what: str, hint: str = "") -> UserError:
    again = "remove the file; `trainwright predict --calibrate RUN...` writes it anew"
    return UserError(what, where=str(path), fix=f"{hint} Or {again}" if hint else again)


def calibrated() -> Constants:
    """The shipped constants, overridden by the user's own."""
    values = {name: value for name, value in overrides().items() if name != LOCAL}
    return constants().with_values(**values) if values else constants()


def read_run(folder: Path) -> Run:
    metrics, prediction = folder / "metrics.jsonl", folder / "prediction.json"
    for path in (metrics, prediction):
        if not path.is_file():
            raise UserError(
                f"{folder} cannot be used to calibrate: {path.name} is missing",
                fix="name the folder of a run that `submit` started",
            )
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines() if line.strip()]
    rates = [float(line["tokens_per_s"]) for line in lines if line.get("tokens_per_s")]
    kept = rates[int(len(rates) * WARM_UP) :]
    if len(kept) < 3:
        raise UserError(
            f"{metrics} has only {len(rates)} lines with a speed", fix="calibrate with a run of at least five lines"
        )
    record = json.loads(prediction.read_text(encoding="utf-8"))
    if "tokens_per_s" not in record:
        raise UserError(
            f"{prediction} holds no prediction: {record.get('unavailable', 'it has no tokens_per_s')}",
            fix="calibrate with a run whose job could be predicted",
        )
    return Run(from_record(record), float(record["tokens_per_s"]), statistics.median(kept))


def log_errors(runs: list[tuple[Setup, float]], c: Constants) -> list[float]:
    return [math.log(s.tokens / step_time(s, c).total / rate) for s, rate in runs]


def calibrate(folders: list[Path]) -> list[Change]:
    """Fit what the runs inform, generation by generation, and keep the result in the user's settings."""
    runs = [read_run(folder) for folder in folders]
    values = overrides()
    changes = []
    computed = [(r.setup, r.tokens_per_s) for r in runs if r.setup is not None]
    for family, name in SUSTAINED.items():
        of_family = [(s, rate) for s, rate in computed if s.cluster.device.family == family]
        if of_family:
            changes += fit_constants({name: SUSTAINED_SIGMA, **SHARED}, of_family)
    on_cpu = [math.log(r.tokens_per_s / r.predicted_tokens_per_s) for r in runs if r.setup is None]
    if on_cpu:
        changes.append(fit_local(on_cpu, values.get(LOCAL, 1.0)))
    values |= {change.name: change.after for change in changes}
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return changes


def fit_local(log: list[float], before: float) -> Change:
    """The pace of this machine: the median of measured over predicted speed, on top of the present pace."""
    after = before * math.exp(statistics.median(log))
    left = [e - math.log(after / before) for e in log]
    return Change(LOCAL, before, after, mean_size(log), mean_size(left), len(log))


def mean_size(log: list[float]) -> float:
    return statistics.fmean(abs(math.expm1(e)) for e in log)


def fit_constants(prior: dict[str, float], runs: list[tuple[Setup, float]]) -> list[Change]:
    """The most likely values given runs and prior: a Kalman update per run. A constant that hardly affects a run
    keeps its value."""
    names = list(prior)
    x, spread = [0.0] * len(names), [[prior[a] ** 2 if a == b else 0.0 for b in names] for a in names]
    for s, rate in runs:
        x, spread = updated(x, spread, names, s, rate)
    start = calibrated()
    kept = {n: v for n, v in moved(names, x).items() if abs(v / getattr(constants(), n) - 1) > SMALL}
    old, new = log_errors(runs, start), log_errors(runs, constants().with_values(**kept))
    return [
        Change(
            name, float(getattr(start, name)), value, mean_size(old), mean_size(new), len(runs),
            abs(math.log(value / getattr(constants(), name))) / prior[name],
        )
        for name, value in kept.items()
    ]  # fmt: skip


def moved(names: list[str], x: list[float]) -> dict[str, float]:
    """The shipped values, moved by x in log space."""
    return {name: float(getattr(constants(), name)) * math.exp(v) for name, v in zip(names, x, strict=True)}


def updated(
    x: list[float], spread: list[list[float]], names: list[str], s: Setup, rate: float
) -> tuple[list[float], list[list[float]]]:
    """Mean and covariance of the constants after one run, with its speed linearised at the result (five rounds)."""

    def speed(at: list[float]) -> float:
        return math.log(s.tokens / step_time(s, constants().with_values(**moved(names, at))).total)

    here, nudge, size = x, 0.02, range(len(x))
    for _ in range(5):
        now = speed(here)
        slope = [(speed([v + nudge * (i == j) for j, v in enumerate(here)]) - now) / nudge for i in size]
        toward = [sum(spread[i][j] * slope[j] for j in size) for i in size]
        gain = [t / (sum(g * t for g, t in zip(slope, toward, strict=True)) + NOISE**2) for t in toward]
        left = math.log(rate) - now - sum(slope[i] * (x[i] - here[i]) for i in size)
        here = [x[i] + gain[i] * left for i in size]
    return here, [[spread[i][j] - gain[i] * toward[j] for j in size] for i in size]
