"""Fits the predictor to a user's own runs and device measurements: the few constants that they inform move from their
shipped values, the others stay. The result is kept in the user's settings."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.catalog.accelerators import accelerator_named
from trainwright.errors import UserError, did_you_mean
from trainwright.files import read_regular
from trainwright.predict.constants import Constants, constants, scalar_names
from trainwright.predict.hardware import device
from trainwright.predict.setup import Setup
from trainwright.predict.setup_record import from_record
from trainwright.predict.step import StepTime, step_time
from trainwright.predict.trace_terms import TERMS, calibration_terms

SUSTAINED = {
    "sm_80": "matmul_sustained_ampere",
    "sm_90": "matmul_sustained_hopper",
    "sm_100": "matmul_sustained_blackwell",
    "neuroncore": "matmul_sustained_neuron",
}
# Constants a run may move beside the matmul rate, and how uncertain published rows leave each (one sigma, log space).
SHARED = {"overlap_contention": 0.5, "step_fixed": 0.5, "tp_overlap_hidden": 0.3, "alltoall_exposed": 0.3}
SUSTAINED_SIGMA = 0.06
NOISE = 0.01  # of a run's measured speed, in log space
PROFILE_NOISE = 0.1  # of a profiled term: kernels are sorted by their names, and the head's loss is in no term alone
PROFILED = ("matrix products", "exposed communication")
DEVICE_NOISE = 0.03  # of `bench device`: a product alone, for a second, against what a long step sustains
SMALL = 0.005  # a change below this share is not kept
FAR = 2.0  # sigmas beyond which a value contradicts the published rows
LOCAL = "local_pace"
RUNS = "calibrated_by_runs"
CLUSTERS = "clusters"  # in the settings: what the runs of one cluster gave, by the name of its spec
WARM_UP = 0.2  # share of a run's lines, at its start, that is ignored


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its setup (None on this machine's CPU), the predicted and the measured speed."""

    setup: Setup | None
    predicted_tokens_per_s: float
    tokens_per_s: float
    terms: dict[str, float] = field(default_factory=dict)  # seconds per step, where the run was profiled
    cluster: str = ""  # the spec's name; empty: not known, and what the run teaches holds everywhere


@dataclass(frozen=True, slots=True)
class Change:
    """One constant that was fitted, and the mean error on its runs before and after."""

    name: str
    before: float
    after: float
    error_before: float
    error_after: float
    measurements: int
    sigmas: float = 0.0  # how far the value is from what published rows give
    cluster: str = ""  # where it holds; empty: everywhere


def settings_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "trainwright" / "predict.json"


def overrides(cluster: str = "") -> dict[str, float]:
    """The constants in the user's settings, those of the cluster over the general ones; a file that somebody edited
    into something else is a UserError."""
    values = _settings()
    return {**_numbers(values), **_numbers(values.get(CLUSTERS, {}).get(cluster, {}))}


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    path, known = settings_file(), [LOCAL, *scalar_names()]
    for name, value in values.items():
        if name in (RUNS, CLUSTERS):
            continue
        if name not in known:
            raise _broken(path, f"the predictor has no constant {name!r}", did_you_mean(name, known))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):
            raise _broken(path, f"{name} is {value!r}, not a number above 0")
    return {name: value for name, value in values.items() if name not in (RUNS, CLUSTERS)}


def _settings() -> dict[str, Any]:
    path = settings_file()
    if not path.exists():
        return {}
    try:
        values = json.loads(read_regular(path))
    except ValueError as error:
        raise _broken(path, f"the predictor's settings are not JSON: {error}") from error
    if not isinstance(values, dict):
        raise _broken(path, "the predictor's settings are not a JSON object")
    clusters = values.get(CLUSTERS, {})
    if not (isinstance(clusters, dict) and all(isinstance(own, dict) for own in clusters.values())):
        raise _broken(path, f"{CLUSTERS} is not a JSON object of JSON objects")
    for part in (values, *clusters.values()):
        families = part.get(RUNS, [])
        if not (isinstance(families, list) and all(family in SUSTAINED for family in families)):
            raise _broken(path, f"{RUNS} is {families!r}, not a list of {', '.join(SUSTAINED)}")
    return values


def _broken(path: Path, what: str, hint: str = "") -> UserError:
    again = "remove the file; `trainwright predict --calibrate RUN...` writes it anew"
    return UserError(what, where=str(path), fix=f"{hint} Or {again}" if hint else again)


def calibrated(cluster: str = "") -> Constants:
    """The shipped constants, overridden by the user's own and by what the runs of that cluster gave."""
    values = {name: value for name, value in overrides(cluster).items() if name != LOCAL}
    settings = _settings()
    families = frozenset([*settings.get(RUNS, []), *settings.get(CLUSTERS, {}).get(cluster, {}).get(RUNS, [])])
    return (
        replace(constants().with_values(**values), calibrated_by_runs=families) if values or families else constants()
    )


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
    terms = calibration_terms(folder)
    # Waiting for data is no property of the machine: without it the step would have taken less.
    waited = terms.get("data wait", 0.0) / sum(terms.values()) if terms else 0.0
    measured = statistics.median(kept) / (1 - waited)
    return Run(from_record(record), float(record["tokens_per_s"]), measured, terms, record.get("cluster", ""))


@dataclass(frozen=True, slots=True)
class DeviceRate:
    """What `bench device` measured: the GPU generation, and its best bf16 product over the rate we would count on, in
    log space. With several GPUs their median, since a step waits for none but the slow one is health's to find."""

    family: str
    log_ratio: float


def read_device(path: Path) -> DeviceRate:
    """The result file of `trainwright bench device -o FILE`."""
    try:
        result = json.loads(read_regular(path))
        rows = [row for row in result["rows"] if row["kind"] == "matmul bf16"] if result["kind"] == "device" else []
        title = result["machine"].get("gpu", "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_device(path, "is no result of `bench device`") from error
    chip = accelerator_named(title)
    if not rows or chip is None:
        raise _no_device(path, f"has no bf16 product of a GPU in the catalog ({title or 'no GPU'})")
    best: dict[str, float] = {}
    for row in rows:
        best[row["device"]] = max(best.get(row["device"], 0.0), float(row["value"]))
    card = device(chip.name)
    assumed = card.matmul_rate("bf16", constants()) / 1e12
    return DeviceRate(card.family, math.log(statistics.median(best.values()) / assumed))


def _no_device(path: Path, what: str) -> UserError:
    return UserError(f"{path} {what}", fix="write one on the GPU node: trainwright bench device -o device.json")


def log_errors(runs: list[tuple[Setup, float]], c: Constants) -> list[float]:
    return [math.log(s.tokens / step_time(s, c).total / rate) for s, rate in runs]


def calibrate(paths: list[Path]) -> list[Change]:
    """Fit what run folders and `bench device` files inform, by cluster and GPU generation, and keep it in the user's
    settings."""
    runs = [read_run(path) for path in paths if not path.is_file()]
    rates = [read_device(path) for path in paths if path.is_file()]
    settings = _settings()
    changes: list[Change] = []
    for cluster in sorted({run.cluster for run in runs if run.setup is not None} | ({""} if rates else set())):
        of_cluster = [run for run in runs if run.cluster == cluster and run.setup is not None]
        own = settings.setdefault(CLUSTERS, {}).setdefault(cluster, {}) if cluster else settings
        changed, families = calibrate_cluster(cluster, of_cluster, [] if cluster else rates)
        changes += changed
        own |= {change.name: change.after for change in changed}
        own |= {RUNS: sorted({*own.get(RUNS, []), *families})} if families else {}
    on_cpu = [math.log(r.tokens_per_s / r.predicted_tokens_per_s) for r in runs if r.setup is None]
    if on_cpu:
        changes.append(fit_local(on_cpu, settings.get(LOCAL, 1.0)))
        settings[LOCAL] = changes[-1].after
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return changes


def calibrate_cluster(cluster: str, runs: list[Run], rates: list[DeviceRate]) -> tuple[list[Change], set[str]]:
    """What the runs of one cluster change, and the GPU generations that they ran on."""
    changes: list[Change] = []
    families: set[str] = set()
    computed = [(r.setup, r.tokens_per_s) for r in runs if r.setup is not None]
    profiled = [(r.setup, r.terms) for r in runs if r.setup is not None and r.terms]
    for family, name in SUSTAINED.items():
        of_family = [(s, rate) for s, rate in computed if s.cluster.device.family == family]
        measured = [rate.log_ratio for rate in rates if rate.family == family]
        if of_family or measured:
            of_profiles = [(s, terms) for s, terms in profiled if s.cluster.device.family == family]
            prior = {name: SUSTAINED_SIGMA, **SHARED}
            changes += fit_constants(prior, of_family, measured, of_profiles, cluster)
        families |= {family} if of_family else set()
    return changes, families


def fit_local(log: list[float], before: float) -> Change:
    """The pace of this machine: the median of measured over predicted speed, on top of the present pace."""
    after = before * math.exp(statistics.median(log))
    left = [e - math.log(after / before) for e in log]
    return Change(LOCAL, before, after, mean_size(log), mean_size(left), len(log))


def mean_size(log: list[float]) -> float:
    return statistics.fmean(abs(math.expm1(e)) for e in log)


def fit_constants(
    prior: dict[str, float],
    runs: list[tuple[Setup, float]],
    device_rates: list[float] | None = None,
    profiles: Sequence[tuple[Setup, dict[str, float]]] = (),
    cluster: str = "",
) -> list[Change]:
    """The most likely values given measurements and prior: a Kalman update per measurement. A constant that hardly
    affects them keeps its value. `device_rates` are measured over assumed rates of the first constant, in log space."""
    names = list(prior)
    x, spread = [0.0] * len(names), [[prior[a] ** 2 if a == b else 0.0 for b in names] for a in names]
    for ratio in device_rates or []:
        gain = spread[0][0] / (spread[0][0] + DEVICE_NOISE**2)
        x[0] += gain * (ratio - x[0])
        spread[0][0] *= 1 - gain
    for s, terms in profiles:
        for term in PROFILED:
            # A term that hardly counts says little, and one that was not predicted says nothing.
            if (
                terms.get(term, 0.0) > 0.02 * sum(terms.values())
                and predicted_term(step_time(s, calibrated(cluster)), term) > 0
            ):
                observe = partial(log_term, s, term)
                x, spread = updated(x, spread, names, observe, math.log(terms[term]), PROFILE_NOISE)
    for s, rate in runs:
        x, spread = updated(x, spread, names, partial(log_speed, s), math.log(rate), NOISE)
    start, general = calibrated(cluster), overrides() if cluster else {}
    kept = {
        n: v for n, v in moved(names, x).items() if abs(v / getattr(constants(), n) - 1) > SMALL or n in general
    }  # of a cluster also what agrees with the shipped value, where the general one does not
    old, new = log_errors(runs, start), log_errors(runs, constants().with_values(**kept))
    first, rates = names[0], device_rates or []
    for errors, value in ((old, getattr(start, first)), (new, kept.get(first, getattr(constants(), first)))):
        errors += [math.log(value / getattr(constants(), first)) - ratio for ratio in rates]
    return [
        Change(
            name, float(getattr(start, name)), value, mean_size(old), mean_size(new), len(old),
            abs(math.log(value / getattr(constants(), name))) / prior[name], cluster,
        )
        for name, value in kept.items()
    ]  # fmt: skip


def moved(names: list[str], x: list[float]) -> dict[str, float]:
    """The shipped values, moved by x in log space."""
    return {name: float(getattr(constants(), name)) * math.exp(v) for name, v in zip(names, x, strict=True)}


def log_speed(s: Setup, c: Constants) -> float:
    return math.log(s.tokens / step_time(s, c).total)


def log_term(s: Setup, term: str, c: Constants) -> float:
    return math.log(max(predicted_term(step_time(s, c), term), 1e-9))


def predicted_term(step: StepTime, term: str) -> float:
    return sum(step.parts[part] for part in TERMS[term])


def updated(
    x: list[float],
    spread: list[list[float]],
    names: list[str],
    observe: Callable[[Constants], float],
    measured: float,
    noise: float,
) -> tuple[list[float], list[list[float]]]:
    """Mean and covariance of the constants after one measurement (of what `observe` predicts, in log space), linearised
    at the result (five rounds)."""

    def speed(at: list[float]) -> float:
        return observe(constants().with_values(**moved(names, at)))

    here, nudge, size = x, 0.02, range(len(x))
    for _ in range(5):
        now = speed(here)
        slope = [(speed([v + nudge * (i == j) for j, v in enumerate(here)]) - now) / nudge for i in size]
        toward = [sum(spread[i][j] * slope[j] for j in size) for i in size]
        gain = [t / (sum(g * t for g, t in zip(slope, toward, strict=True)) + noise**2) for t in toward]
        left = measured - now - sum(slope[i] * (x[i] - here[i]) for i in size)
        here = [x[i] + gain[i] * left for i in size]
    return here, [[spread[i][j] - gain[i] * toward[j] for j in size] for i in size]
