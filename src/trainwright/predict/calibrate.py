"""Adjusts the predictor to a user's own runs: what their machines sustain, kept in their settings."""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.predict.constants import Constants, constants
from trainwright.predict.hardware import cluster
from trainwright.predict.plan import Batch
from trainwright.predict.prediction import find_model, plan_for
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time

SUSTAINED = {
    "sm_80": "matmul_sustained_ampere",
    "sm_90": "matmul_sustained_hopper",
    "sm_100": "matmul_sustained_blackwell",
}
LOCAL = "local_pace"
WARM_UP = 0.2  # of a run's lines, left out


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: what was predicted for it and what it did."""

    folder: Path
    said: dict[str, object]
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """One number that moved, and what that did to the error on the runs it rests on."""

    name: str
    before: float
    after: float
    error_before: float
    error_after: float
    runs: int


def settings_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "trainwright" / "predict.json"


def overrides() -> dict[str, float]:
    path = settings_file()
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def calibrated() -> Constants:
    """The shipped constants with the user's own over them."""
    values = {name: value for name, value in overrides().items() if name != LOCAL}
    return constants().with_values(**values) if values else constants()


def read_run(folder: Path) -> Run:
    metrics, prediction = folder / "metrics.jsonl", folder / "prediction.json"
    for path in (metrics, prediction):
        if not path.is_file():
            raise UserError(
                f"{folder} is not a run that can calibrate: {path.name} is missing",
                fix="name the folder of a run that `submit` started",
            )
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines() if line.strip()]
    rates = [float(line["tokens_per_s"]) for line in lines if line.get("tokens_per_s")]
    kept = rates[int(len(rates) * WARM_UP) :]
    if len(kept) < 3:
        raise UserError(
            f"{metrics} holds {len(rates)} rates: too few", fix="calibrate with a run of at least five lines"
        )
    return Run(folder, json.loads(prediction.read_text(encoding="utf-8")), statistics.median(kept))


def setup_of_run(run: Run) -> Setup:
    said = run.said
    machines = cluster(str(said["instance"]), int(str(said["nodes"])))
    stack = profile(str(said["trainer"]))
    plan = plan_for(str(said["plan"]), machines.gpus, stack)
    batch = Batch(int(str(said["seq"])), int(str(said["micro_batch"])), int(str(said["microbatches"])))
    policy, _, part = str(said["recompute"]).partition(" on ")
    share = float(part.split("%")[0]) / 100 if part else 1.0
    return Setup(
        find_model(str(said["model"])), machines, plan, batch, stack, str(said["precision"]),
        recompute=policy, recompute_part=share,
    )  # fmt: skip


def log_errors(runs: list[tuple[Setup, float]], c: Constants) -> list[float]:
    return [math.log(s.tokens / step_time(s, c).total / rate) for s, rate in runs]


def calibrate(folders: list[Path]) -> list[Change]:
    """Fit each generation's sustained rate to the runs on it, keep the result, and tell."""
    runs = [read_run(folder) for folder in folders]
    kept = overrides()
    changes = []
    away = [(setup_of_run(r), r.tokens_per_s) for r in runs if r.said.get("instance")]
    for family, name in SUSTAINED.items():
        mine = [(s, rate) for s, rate in away if s.cluster.device.family == family]
        if mine:
            change = fit_one(name, mine)
            kept[name] = change.after
            changes.append(change)
    here = [math.log(r.tokens_per_s / float(str(r.said["tokens_per_s"]))) for r in runs if not r.said.get("instance")]
    if here:
        before = kept.get(LOCAL, 1.0)
        after = before * math.exp(statistics.median(here))
        kept[LOCAL] = after
        left = [e - math.log(after / before) for e in here]
        changes.append(Change(LOCAL, before, after, mean_size(here), mean_size(left), len(here)))
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return changes


def mean_size(log: list[float]) -> float:
    return statistics.fmean(abs(math.expm1(e)) for e in log)


def fit_one(name: str, runs: list[tuple[Setup, float]]) -> Change:
    """Bisection: the rate at which the median run is neither too fast nor too slow; within a third of the shipped."""
    base = constants()
    shipped = float(getattr(base, name))
    low, high = shipped * 0.67, min(1.1, shipped * 1.33)
    for _ in range(40):
        middle = (low + high) / 2
        if statistics.median(log_errors(runs, base.with_values(**{name: middle}))) > 0:
            high = middle
        else:
            low = middle
    after = (low + high) / 2
    before = float(getattr(calibrated(), name))
    old = log_errors(runs, base.with_values(**{name: before}))
    new = log_errors(runs, base.with_values(**{name: after}))
    return Change(name, before, after, mean_size(old), mean_size(new), len(runs))
