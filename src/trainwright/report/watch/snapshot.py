"""What the live views show at one moment, as plain data: jobs, queues, recent runs, and one run in depth.

A watcher keeps its place in a run's files and asks each scheduler once per poll, so that watching costs little."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from trainwright.errors import UserError
from trainwright.health.watch import MESSAGE
from trainwright.report.run_report.happenings import event_of
from trainwright.runs import reach, store
from trainwright.runs.behind import RunBehind
from trainwright.runs.follow import predicted_speed
from trainwright.runs.progress import Progress
from trainwright.runs.steps import StepSource
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, Scheduler
from trainwright.schedulers.logs import new_lines
from trainwright.train.expectation import read_expectation

POINTS = 240  # of the live curves
EVENTS = 12
RUNS = 20
QUEUES_EVERY = 10.0  # seconds: nodes change less often than steps
LIVE = {"pending", "running", "completing", "unknown"}


@dataclass(frozen=True)
class RunView:
    """One run in depth. What is not known is None."""

    name: str
    state: str
    reason: str
    where: str
    ranks: int
    step: int
    steps: int | None
    loss: float | None
    tokens_per_s: float | None
    predicted: float | None
    low: float | None
    high: float | None
    eta_s: float | None
    goodput: float | None
    mfu: float | None
    memory_gb: float | None
    data_wait: float | None  # share of the step
    gpu_use: float | None  # mean share of the GPUs of this machine that is busy, where the job runs on it
    network_mb_s: float | None  # between neighbours, when the ranks were last measured
    xs: tuple[int, ...]
    losses: tuple[float | None, ...]
    speeds: tuple[float | None, ...]
    events: tuple[tuple[float, str], ...]
    behind: str = ""
    loss_finite: bool = True  # of the newest step that has one

    @property
    def over(self) -> bool:
        return self.state not in LIVE


@dataclass(frozen=True)
class Snapshot:
    time: float
    jobs: tuple[JobStatus, ...]
    queues: tuple[tuple[str, str, str], ...]  # cluster, queue, nodes by state
    runs: tuple[tuple[str, str, str], ...]  # name, state, job; the newest first
    run: RunView | None
    problem: str = ""


@dataclass
class RunWatcher:
    """Reads what is new of one run with every poll."""

    run: Run
    scheduler: Scheduler
    progress: Progress
    steps: StepSource
    behind: RunBehind
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=POINTS))
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))
    positions: dict[str, int] = field(default_factory=dict)
    slower: str = ""
    loss_finite: bool = True
    network: float | None = None
    gpus: float | None = None
    gpus_at: float = 0.0

    @classmethod
    def of(cls, run: Run) -> RunWatcher:
        scheduler = reach.scheduler_of(run)
        progress = Progress(run.steps, predicted_speed(run))
        return cls(run, scheduler, progress, StepSource(run, scheduler), RunBehind(run))

    def view(self, status: JobStatus) -> RunView:
        self._read()
        progress, last = self.progress, self.recent[-1] if self.recent else {}
        expected = read_expectation(self.run.folder)
        wait, step_s = last.get("data_wait_s"), last.get("step_s")
        return RunView(
            name=self.run.name, state=status.state, reason=status.reason, where=status.node_list or self.run.cluster
            or self.run.scheduler, ranks=self.run.ranks, step=progress.step, steps=progress.steps, loss=progress.loss,
            tokens_per_s=progress.tokens_per_second, predicted=expected.tokens_per_s if expected else None,
            low=expected.low if expected else None, high=expected.high if expected else None,
            eta_s=progress.seconds_left() if status.state in LIVE else None, goodput=progress.goodput,
            mfu=last.get("mfu"), memory_gb=last.get("memory_gb"),
            data_wait=wait / step_s if wait is not None and step_s else None, gpu_use=self.gpus,
            network_mb_s=self.network,
            xs=tuple(int(row["step"]) for row in self.recent), losses=tuple(row.get("loss") for row in self.recent),
            speeds=tuple(row.get("tokens_per_s") for row in self.recent), events=tuple(self.events),
            behind=self.slower, loss_finite=self.loss_finite,
        )  # fmt: skip

    def _read(self) -> None:
        if self.run.scheduler == "process" and time.monotonic() - self.gpus_at > QUEUES_EVERY:
            self.gpus, self.gpus_at = gpu_use(), time.monotonic()
        new = [{name: _finite(value) for name, value in step.items()} for step in self.steps.new()]
        self.behind.take(new)
        self.progress.take(new)
        self.recent.extend(new)
        for step in new:
            self.loss_finite = step["loss"] is not None if "loss" in step else self.loss_finite
        for event in self._new("events.jsonl"):
            if isinstance(event.get("time"), int | float) and math.isfinite(event["time"]):
                words = event_of(event)
                self.events.append((words.time, words.text))
                self.slower = words.text if event.get("event") == "behind" else self.slower
        for row in self._new("timings.jsonl"):
            times = [value for value in row.get("from_previous_s", ()) if value]
            kind = "cuda" if self.recent and self.recent[-1].get("mfu") is not None else "cpu"
            size = MESSAGE[kind] * 4 / 1e6  # of what a rank sends to its neighbour when the ranks are measured
            self.network = size * len(times) / sum(times) if times else self.network

    def _new(self, name: str) -> list[dict[str, Any]]:
        path = f"{self.run.where}/{name}"
        lines, self.positions[name] = new_lines(self.scheduler.shell, path, self.positions.get(name, 0))
        rows = []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows


@dataclass
class Watcher:
    """Polls; `chosen` is the run in depth, by default the newest."""

    chosen: str = ""
    watched: RunWatcher | None = None
    queues: tuple[tuple[str, str, str], ...] = ()
    queues_at: float = 0.0

    def poll(self) -> Snapshot:
        jobs, problem = [], ""
        try:
            jobs = reach.all_jobs()
        except UserError as error:
            problem = error.what
        if time.monotonic() - self.queues_at > QUEUES_EVERY:
            self.queues, self.queues_at = _queues(), time.monotonic()
        runs = list(store.all_runs())[:RUNS]
        states = {job.name: job for job in jobs}
        rows = tuple((run.name, _state(run, states).state, run.job) for run in runs)
        return Snapshot(time.time(), tuple(jobs), self.queues, rows, self._run(runs, states), problem)

    def choose(self, name: str) -> None:
        self.chosen = name

    def _run(self, runs: list[Run], states: dict[str, JobStatus]) -> RunView | None:
        name = self.chosen or (runs[0].name if runs else "")
        if not name:
            return None
        if self.watched is None or self.watched.run.name != name:
            self.watched = RunWatcher.of(store.find(name))
        return self.watched.view(_state(self.watched.run, states))


def _finite(value: Any) -> Any:
    """JSON has no NaN, and no view can draw one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def gpu_use() -> float | None:
    """The mean use of this machine's GPUs; None where there is none. Nodes of a cluster have exporters for that."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        shares = [float(line) / 100 for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return sum(shares) / len(shares) if shares else None


def _state(run: Run, states: dict[str, JobStatus]) -> JobStatus:
    """From the list of jobs where it is there, so that no scheduler is asked twice."""
    return states.get(run.name) or reach.run_state(run)


def _queues() -> tuple[tuple[str, str, str], ...]:
    """The queues of the local clusters; others are asked by `trainwright status`."""
    from trainwright.platforms.base import find
    from trainwright.platforms.local import state

    rows = []
    for name in state.names():
        try:
            platform, cluster, spec = find(name)
            for queue in platform.status(cluster, spec).queues:
                counts = ", ".join(f"{count} {word}" for word, count in queue.states.items())
                rows.append((cluster, queue.name, counts))
        except UserError as error:
            rows.append((name, "", error.what))
    return tuple(rows)
