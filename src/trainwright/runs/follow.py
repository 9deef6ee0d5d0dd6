"""Watching a run: its log lines as they come, and one live line of step, loss, speed and time left.

It only reads the run folder, so closing the terminal loses nothing and a second one may watch the same run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainwright.runs.reach import run_state
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, Scheduler
from trainwright.schedulers.logs import new_lines


@dataclass
class Progress:
    """The newest of metrics.jsonl, and how fast steps come."""

    steps: int | None = None
    step: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None
    seen: list[tuple[float, int]] = field(default_factory=list)

    def take(self, lines: list[str]) -> bool:
        """Read new records; whether there were any."""
        records = [record for line in lines if (record := _parse(line)) and "step" in record]
        for record in records:
            if record["step"] <= self.step:
                self.seen.clear()  # it came back after a fault: the pace starts over
            self.step = int(record["step"])
            self.loss = record.get("loss", self.loss)
            self.tokens_per_second = record.get("tokens_per_s", self.tokens_per_second)
            self.seconds_per_step = record.get("step_s", self.seconds_per_step)
            self.seen.append((float(record.get("time", time.time())), self.step))
        del self.seen[:-20]
        return bool(records)

    def line(self) -> str:
        """`step 120/500  loss 2.3451  8.1k tokens/s  ETA 1:02`; what is not known is left out."""
        parts = [f"step {self.step}" + (f"/{self.steps}" if self.steps else "")]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.tokens_per_second:
            parts.append(f"{_short(self.tokens_per_second)} tokens/s")
        left = self.seconds_left()
        if left is not None:
            parts.append(f"ETA {int(left) // 3600:d}:{int(left) % 3600 // 60:02d}:{int(left) % 60:02d}")
        return "  ".join(parts)

    def seconds_left(self) -> float | None:
        if not self.steps:
            return None
        pace = self.seconds_per_step
        if len(self.seen) > 1 and self.seen[-1][1] > self.seen[0][1]:
            pace = (self.seen[-1][0] - self.seen[0][0]) / (self.seen[-1][1] - self.seen[0][1])
        return None if pace is None else pace * max(0, self.steps - self.step)


def follow(
    run: Run,
    scheduler: Scheduler,
    rank: int | None = None,
    line: Callable[[str], None] = print,
    live: Callable[[str], None] = lambda words: None,
    pause: float = 0.5,
) -> JobStatus:
    """Show a run until its job is over, and return how it ended."""
    seen: dict[str, str] = {}
    metrics, position = f"{run.where}/metrics.jsonl", 0
    progress = Progress(run.steps)
    last = ""
    while True:
        # Asked before the logs are read: what a job wrote before it ended is then always shown.
        status = run_state(run, scheduler)
        for source, text in scheduler.logs(run.identity, run.where, seen, rank):
            line(f"[{source}] {text}")
        records, position = new_lines(scheduler.shell, metrics, position)
        if progress.take(records):
            live(progress.line())
        elif status.state != last:
            live(f"{status.state}{f' ({status.reason})' if status.reason else ''}")
        last = status.state
        if status.over:
            return status
        time.sleep(pause)


def _parse(line: str) -> dict[str, float]:
    try:
        record = json.loads(line)
    except ValueError:  # the last line of a run that was cut off
        return {}
    return record if isinstance(record, dict) else {}


def _short(value: float) -> str:
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"
