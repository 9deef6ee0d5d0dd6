"""Watching a run: its log lines as they come, and one live line of step, loss, speed and time left.

It only reads the run folder, so closing the terminal loses nothing and a second one may watch the same run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.shell import Shell

# How torchrun (as the launch asks it to) and mpirun tell the ranks of one log apart.
RANK_LINE = re.compile(r"\[(?:rank|1,)(\d+)\](?:<\w+>)?: ?(.*)")
LOGS = re.compile(r"(job(?:-\d+)?|rank-\d+|node-\d+|health-\S+)\.log")


@dataclass
class Tail:
    """The lines a file gained since it was last looked at."""

    shell: Shell
    path: str
    offset: int = 0
    rest: bytes = b""

    def lines(self) -> list[str]:
        # A trainer that resumes takes back the lines of steps it will do again: the file is shorter then.
        if self.shell.size(self.path) < self.offset:
            self.offset, self.rest = 0, b""
        data = self.shell.read(self.path, self.offset)
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


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


def log_files(run: Run, shell: Shell, rank: int | None = None) -> list[str]:
    """The log files of a run so far: all of them, or one rank's."""
    names = [name for name in shell.listing(f"{run.where}/logs") if LOGS.fullmatch(name)]
    if rank is not None:
        return [f"{run.where}/logs/{name}" for name in names if name == f"rank-{rank}.log"]
    names.sort(key=lambda name: [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)])
    own = [name for name in shell.listing(run.where) if LOGS.fullmatch(name)]
    return [*(f"{run.where}/{name}" for name in own), *(f"{run.where}/logs/{name}" for name in names)]


def prefix(path: str) -> str:
    """`[rank-3] ` before each of its lines."""
    return f"[{path.rsplit('/', 1)[-1].removesuffix('.log')}] "


def new_lines(run: Run, shell: Shell, tails: dict[str, Tail], rank: int | None) -> Iterator[str]:
    """What the logs gained since the last call, each line with where it comes from."""
    for path in log_files(run, shell, rank):
        tail = tails.setdefault(path, Tail(shell, path))
        for line in tail.lines():
            yield prefix(path) + line


class Streams(Protocol):
    """A scheduler whose logs come through its API."""

    def logs(self, job: str, seen: dict[str, str]) -> Iterator[tuple[str, str]]: ...


def streamed_lines(streams: Streams, job: str, seen: dict[str, str], rank: int | None) -> Iterator[str]:
    """The same from a scheduler's API, where one container's log holds all ranks of a node."""
    for source, line in streams.logs(job, seen):
        told = RANK_LINE.match(line)
        if rank is None or (told and int(told[1]) == rank):
            yield f"[rank-{told[1]}] {told[2]}" if told else f"[{source}] {line}"


def follow(
    run: Run,
    shell: Shell,
    state: Callable[[], JobStatus],
    rank: int | None = None,
    line: Callable[[str], None] = print,
    live: Callable[[str], None] = lambda words: None,
    pause: float = 0.5,
    lines: Callable[[], Iterator[str]] | None = None,
) -> JobStatus:
    """Show a run until its job is over, and give back how it ended."""
    lines = lines or partial(new_lines, run, shell, {}, rank)
    metrics = Tail(shell, f"{run.where}/metrics.jsonl")
    progress = Progress(run.steps)
    last = ""
    while True:
        # Asked before the logs are read: what a job wrote before it ended is then always shown.
        status = state()
        for text in lines():
            line(text)
        if progress.take(metrics.lines()):
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
