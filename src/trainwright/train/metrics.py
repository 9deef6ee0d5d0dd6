"""What a run reports: metrics.jsonl and events.jsonl in its folder, one line per step on the console, TensorBoard and
Weights & Biases on request. train/flops.py defines MFU."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

from trainwright.errors import UserError
from trainwright.train.data.format import write_durably
from trainwright.train.data.progress import clock, si
from trainwright.train.disk import append_line
from trainwright.train.flops import rates_of_device


@dataclass(frozen=True, slots=True)
class Metrics:
    """One line of metrics.jsonl. Rates are over the steps since the previous line."""

    step: int  # steps done
    loss: float  # mean over the global batch
    grad_norm: float  # before clipping
    lr: float
    tokens: int  # tokens seen by the whole job
    tokens_per_s: float  # of the whole job
    mfu: float | None  # None where the device's peak is not known
    step_s: float
    data_wait_s: float  # waiting for the loader, per step
    checkpoint_stall_s: float  # waiting for checkpoints, per step
    memory_gb: float  # peak: of the GPU, or of the process on a CPU
    goodput: float  # share of the time since the first start that was spent in steps that count
    time: float  # seconds since 1970
    eval_loss: float | None = None
    scores: dict[str, float] | None = None  # further results of an evaluation, by name: perplexity, accuracy


def peak_flops(device: torch.device) -> float | None:
    """The peak that MFU divides by, in FLOP/s of one device; None where it is not known."""
    rates = rates_of_device(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return rates.mfu if rates else None


def memory_gb(device: torch.device) -> float:
    """Peak memory: allocated by torch on a GPU, or resident in the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    # Not getrusage where it can be helped: on Linux it may give the peak of the process that started this one.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def versions(device: torch.device) -> dict[str, str]:
    """What this rank runs on, for the record."""
    names = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        names |= {"cuda": torch.version.cuda or "", "nccl": nccl, "gpu": torch.cuda.get_device_name(device)}
    return names


class Journal:
    """The run folder's metrics.jsonl, events.jsonl and result.json. Only rank 0 writes."""

    def __init__(self, folder: Path, active: bool) -> None:
        self.folder, self.active = folder, active

    def metrics(self, line: Metrics) -> None:
        self._append("metrics.jsonl", asdict(line))

    def event(self, kind: str, step: int, **facts: Any) -> None:
        self._append("events.jsonl", {"time": time.time(), "event": kind, "step": step, **facts})

    def result(self, facts: dict[str, Any]) -> None:
        if self.active:
            write_durably(self.folder / "result.json", (json.dumps(json_safe(facts), indent=1) + "\n").encode())

    def remove_result(self) -> None:
        """Remove the result of an earlier start."""
        if self.active:
            (self.folder / "result.json").unlink(missing_ok=True)

    def set_metrics_aside_after(self, step: int) -> None:
        """Move the metrics of steps that will be repeated to metrics-aside.jsonl, so that each step has one line."""
        path = self.folder / "metrics.jsonl"
        lines = read_lines(path) if self.active and path.exists() else []
        repeated = [line for line in lines if line["step"] > step]
        if repeated:
            for line in repeated:
                self._append("metrics-aside.jsonl", line)
            kept = [line for line in lines if line["step"] <= step]
            write_durably(path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The newest checkpoint that this run has completed since it last started over: its step and its store."""
        events, result = self.folder / "events.jsonl", self.folder / "result.json"
        rows = read_lines(events) if events.exists() else []
        afresh = [i for i, e in enumerate(rows) if e["event"] == "start" and e.get("afresh")]
        known = [e for e in rows[afresh[-1] if afresh else 0 :] if e["event"] in ("checkpoint", "resume")]
        if not known and result.exists():  # of a version that did not record completed checkpoints
            step = json.loads(result.read_text(encoding="utf-8")).get("checkpoint")
            if step is not None:
                self.event("checkpoint", step)
                return {"step": step}
        return known[-1] if known else None

    def first_start(self) -> float:
        """When this run first started; a start with `--resume never` counts as the first."""
        path = self.folder / "events.jsonl"
        starts = [e for e in read_lines(path) if e["event"] == "start"] if path.exists() else []
        afresh = [i for i, e in enumerate(starts) if e.get("afresh")]
        return starts[afresh[-1] if afresh else 0]["time"] if starts else time.time()

    def _append(self, name: str, row: dict[str, Any]) -> None:
        if self.active:
            append_line(self.folder / name, json.dumps(json_safe(row)))


def json_safe(value: Any) -> Any:
    """The value with NaN and infinity replaced by null, which JSON has."""
    if isinstance(value, dict):
        return {k: json_safe(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; a truncated last line is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


class Console:
    """One aligned line per step; colour only on a terminal."""

    def __init__(self, steps: int, active: bool, stream: TextIO | None = None, samples_of: int = 0) -> None:
        """With `samples_of`, speed is shown in samples of so many tokens."""
        self.steps, self.active, self.samples_of = steps, active, samples_of
        self.stream = stream or sys.stderr
        self.colour = self.stream.isatty() and "NO_COLOR" not in os.environ
        self.on_closed: Callable[[], None] = lambda: None

    def say(self, text: str) -> None:
        if self.active:
            try:
                print(text, file=self.stream, flush=True)
            except OSError:  # the terminal or the reader of a pipe went away: save, then stop
                self.active = False
                self.on_closed()

    def line(self, m: Metrics) -> None:
        """Step, loss, norm, learning rate, speed, share of time spent waiting, and time left."""
        width = len(str(self.steps))
        left = (self.steps - m.step) * m.step_s
        waits = m.data_wait_s + m.checkpoint_stall_s
        parts = [
            f"step {m.step:>{width}}/{self.steps}",
            self._bold(f"loss {m.loss:8.4f}"),
            f"norm {m.grad_norm:7.3f}",
            f"lr {m.lr:.2e}",
            f"{si(m.tokens_per_s / (self.samples_of or 1)):>6}{'samples' if self.samples_of else 'tok'}/s",
            f"{'' if m.mfu is None else f'mfu {m.mfu:5.1%}'}",
            f"mem {m.memory_gb:5.1f} GB",
            f"wait {waits / max(m.step_s, 1e-9):4.1%}",
            f"eta {clock(left)}" if m.step < self.steps else f"took {clock(m.time - self.began)}",
            f"eval {m.eval_loss:.4f}" if m.eval_loss is not None else "",
            *(f"{name} {value:.4g}" for name, value in (m.scores or {}).items()),
        ]
        self.say("  ".join(p for p in parts if p))

    began = time.time()

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text


class Trackers:
    """TensorBoard and Weights & Biases, where asked for and installed."""

    def __init__(self, folder: Path, config: dict[str, Any], step: int, run: str) -> None:
        """`step` is where this start continues, `run` the name shared by all starts of a run."""
        self.board: Any = None
        self.wandb: Any = None
        if config["tensorboard"]:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        if config["wandb"]:
            import wandb as package

            self.wandb = package.init(
                project=config["wandb"], id=run, name=folder.name, dir=str(folder), config=config, resume="allow"
            )

    def metrics(self, line: Metrics) -> None:
        values = {k: v for k, v in asdict(line).items() if v is not None and k not in ("step", "time", "scores")}
        values |= line.scores or {}
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, line.step)
        if self.wandb is not None:
            self.wandb.log(values, step=line.step)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def require_trackers(tensorboard: bool, wandb: str) -> None:
    """Checked on every rank before anything is built: if only rank 0 failed, the others would wait for it."""
    for package, wanted in (("tensorboard", tensorboard), ("wandb", wandb)):
        if wanted and importlib.util.find_spec(package) is None:
            raise UserError(
                f"--{package} needs the {package!r} package", fix=f"pip install {package}, or drop --{package}"
            )
