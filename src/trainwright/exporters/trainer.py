"""Our trainer's own metrics, from the run folders: the last line of metrics.jsonl, the last checkpoint, the prediction.
Runs where the folders can be seen, once per cluster."""

from __future__ import annotations

import glob
import json
import os
import time
from typing import Any

from trainwright.exporters.metric import MetricSet

TAIL = 1 << 14  # bytes: many lines
RECENT = 24 * 3600.0  # a run that wrote nothing for longer is over, whatever it says
MOST_RUNS = 200
OVER_SECONDS = 900.0
FACTS = {
    "step": "Steps done.",
    "loss": "Loss of the last line.",
    "grad_norm": "Norm of the gradient before clipping.",
    "tokens": "Tokens seen by the whole job.",
    "tokens_per_s": "Tokens per second of the whole job.",
    "mfu": "Model FLOPs utilisation.",
    "step_s": "Seconds per step.",
    "data_wait_s": "Seconds per step spent waiting for data.",
    "checkpoint_stall_s": "Seconds per step spent waiting for checkpoints.",
    "memory_gb": "Peak memory in GB.",
    "goodput": "Share of the time since the first start that was spent in steps that count.",
}


class TrainerCollector:
    name = "trainer"

    def __init__(self, folders: list[str]) -> None:
        self.folders = folders
        self.over: dict[str, float] = {}  # runs that have ended, and when they were last looked at

    def available(self) -> bool:
        return bool(self.folders)

    def collect(self) -> MetricSet:
        metrics, now = MetricSet(), time.time()
        paths = [path for folder in self.folders for path in glob.glob(f"{folder}/*/metrics.jsonl")]
        # Thousands of runs lie on a network file system: those that are over are looked at now and then only.
        changed = {path: _changed(path) for path in paths if now - self.over.get(path, 0.0) > OVER_SECONDS}
        self.over |= {path: now for path, when in changed.items() if now - when > RECENT}
        active = [path for path in changed if path not in self.over or now - changed[path] < RECENT]
        for path in sorted(active, key=changed.__getitem__, reverse=True)[:MOST_RUNS]:
            self.over.pop(path, None)
            self._run(metrics, os.path.dirname(path))
        return metrics

    def _run(self, metrics: MetricSet, folder: str) -> None:
        labels = {"run": os.path.basename(folder), "slurm_job": _job(folder)}
        rows = _tail(f"{folder}/metrics.jsonl")
        if not rows:
            return
        last = rows[-1]
        for key, text in FACTS.items():
            metrics.gauge(f"run_{key}", text).add(_number(last.get(key)), **labels)
        text = "When a run wrote its last line."
        metrics.gauge("run_last_line_timestamp_seconds", text).add(_number(last.get("time")), **labels)
        times = [value for row in rows if (value := _number(row.get("time"))) is not None]
        text = "Seconds between the last two lines of a run."
        metrics.gauge("run_line_interval_seconds", text).add(
            times[-1] - times[-2] if len(times) > 1 else None, **labels
        )
        ended = os.path.exists(f"{folder}/result.json")
        metrics.gauge("run_active", "Whether a run has not ended yet.").add(not ended, **labels)
        saved = [row for row in _tail(f"{folder}/events.jsonl") if row.get("event") == "checkpoint"]
        if saved:
            text = "When a run completed its last checkpoint."
            metrics.gauge("run_last_checkpoint_timestamp_seconds", text).add(_number(saved[-1].get("time")), **labels)
        self._predicted(metrics, folder, labels)

    def _predicted(self, metrics: MetricSet, folder: str, labels: dict[str, str]) -> None:
        prediction = _json(f"{folder}/prediction.json")
        speed = _number(prediction.get("tokens_per_s"))
        metrics.gauge("run_predicted_tokens_per_s", "Tokens per second as predicted.").add(speed, **labels)
        low, gpus = _number(prediction.get("low")), _number(prediction.get("gpus"))
        if low is not None and gpus is not None:
            text = "Lower end of the 80 % interval of the predicted tokens per second."
            metrics.gauge("run_predicted_tokens_per_s_low", text).add(low * gpus, **labels)
        cost = prediction.get("cost")
        price = _number(cost.get("usd_hour")) if isinstance(cost, dict) else None
        metrics.gauge("run_usd_per_hour", "Price of the run's nodes, from the price list.").add(price, **labels)


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _tail(path: str) -> list[dict[str, Any]]:
    """The last rows of a JSONL file; half a line at either end is left out."""
    try:
        with open(path, "rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - TAIL))
            lines = handle.read(TAIL).decode(errors="replace").splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            value = json.loads(handle.read(1 << 20))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _job(folder: str) -> str:
    return str(_json(f"{folder}/run.json").get("job_id", ""))


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
