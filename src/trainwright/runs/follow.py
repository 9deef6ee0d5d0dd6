"""Watching a run: its log lines as they come, and how far it is.

It only reads the run folder, so closing the terminal loses nothing and a second one may watch the same run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from trainwright.runs.behind import RunBehind
from trainwright.runs.progress import Progress
from trainwright.runs.reach import run_state, scheduler_of
from trainwright.runs.steps import StepSource, steps_so_far
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, Scheduler

ENOUGH = 2**18  # bytes of metrics.jsonl
Show = Callable[[Progress, JobStatus], None]


def follow(
    run: Run,
    scheduler: Scheduler,
    rank: int | None = None,
    line: Callable[[str], None] = print,
    show: Show = lambda progress, status: None,
    pause: float = 0.5,
) -> JobStatus:
    """Show a run until its job is over, and return how it ended. `show` is called for new steps and new states."""
    seen: dict[str, str] = {}
    steps = StepSource(run, scheduler)
    progress, behind = Progress(run.steps, predicted_speed(run)), RunBehind(run)
    last = ""
    while True:
        # Asked before the logs are read: what a job wrote before it ended is then always shown.
        status = run_state(run, scheduler)
        for source, text in scheduler.logs(run.identity, run.where, seen, rank):
            line(f"[{source}] {text}")
        new = steps.new()
        for slower in behind.take(new):
            line(f"slower than predicted ({slower.cause}): {slower.why}")
        if progress.take(new) or status.state != last:
            show(progress, status)
        last = status.state
        if status.over:
            return status
        time.sleep(pause)


def progress_of(run: Run) -> Progress:
    """How far a run came, from its last thousand steps or so."""
    progress = Progress(run.steps, predicted_speed(run))
    progress.take(steps_so_far(run, scheduler_of(run), most=ENOUGH))
    return progress


def predicted_speed(run: Run) -> float | None:
    """Tokens per second that were predicted when the run was submitted."""
    path = run.folder / "prediction.json"
    return json.loads(path.read_text()).get("tokens_per_s") if path.exists() else None
