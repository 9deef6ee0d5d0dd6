"""A local Slurm and the few things tests do with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counting_jobs import order, submit_counting
from trainwright.platforms.local.state import Record
from trainwright.runs import submission
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.slurm import SlurmScheduler


@dataclass(frozen=True)
class Bench:
    """A cluster and the few things tests do with it."""

    record: Record
    scheduler: SlurmScheduler
    spec: dict[str, Any]

    def submit(self, *args: str, **fields: object) -> Run:
        """Submit the counting trainer the way `trainwright submit` does."""
        return submit_counting(order(self.spec, {"nodes": 2, "steps": 20, **fields}, self.scheduler), *args)

    def submit_job(self, **fields: object) -> Run:
        """Submit a job as it is."""
        ordered = order(self.spec, fields, self.scheduler)
        return submission.submit(ordered, submission.plan(ordered))

    def wait(self, run: Run, test: Callable[[JobStatus], bool], seconds: float = 60) -> JobStatus:
        deadline = time.monotonic() + seconds
        while not test(status := self.scheduler.state(run.identity)):
            assert time.monotonic() < deadline, f"{status}\n{report(run)}"
            time.sleep(0.1)
        return status

    def end(self, run: Run, seconds: float = 90) -> JobStatus:
        return self.wait(run, lambda status: status.over, seconds)

    def at_step(self, run: Run, step: int, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while len(metrics(run)) < step:
            assert time.monotonic() < deadline, report(run)
            time.sleep(0.05)


def metrics(run: Run) -> list[str]:
    path = run.folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def report(run: Run) -> str:
    texts = [f"{path.name}: {path.read_text()[-800:]}" for path in sorted(run.folder.glob("**/*.log"))]
    events = run.folder / "events.jsonl"
    return "\n".join([*texts, events.read_text() if events.exists() else ""])
