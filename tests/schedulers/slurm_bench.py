"""A local Slurm and the few things tests do with it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.platforms.local.state import Record
from trainwright.runs import submission
from trainwright.runs.store import Run
from trainwright.runs.submission import Order, Planned
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.model import Job, Spec

COUNTING = Path(__file__).parent / "counting.py"


def plan_counting(order: Order) -> Planned:
    """The plan of an order whose ranks run the counting trainer instead of ours: it starts in a tenth of the time."""
    planned = submission.plan(order)
    python = planned.launch.command[0]
    launch = dataclasses.replace(planned.launch, command=(python, str(COUNTING), *order.job.args))
    return dataclasses.replace(planned, launch=launch, script=order.scheduler.render(launch))


def submit_counting(order: Order) -> Run:
    return submission.submit(order, plan_counting(order))


@dataclass(frozen=True)
class Bench:
    """A cluster and the few things tests do with it."""

    record: Record
    scheduler: SlurmScheduler
    spec: Spec

    def submit(self, *args: str, **fields: object) -> Run:
        """Submit the counting trainer the way `trainwright submit` does."""
        job = Job(name="count", model="llama3.2-1b-debug", args=args, **{"nodes": 2, "steps": 20, **fields})
        return submit_counting(self.order(job))

    def submit_job(self, job: Job) -> Run:
        order = self.order(job)
        return submission.submit(order, submission.plan(order))

    def order(self, job: Job) -> Order:
        return Order(self.spec, job, self.scheduler, Path(__file__).parent)

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
