"""The drill: cause the faults of a long run on a real cluster, and measure what each cost beside what it may."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwright.check.gate import require_clean
from trainwright.errors import UserError
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.select import job_index
from trainwright.runs import submission
from trainwright.runs.faults import FaultInjector, LocalFaults, SlurmFaults
from trainwright.runs.reach import scheduler_for
from trainwright.runs.store import Run
from trainwright.runs.submission import Order
from trainwright.schedulers.base import JobIdentity, JobStatus
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.load import LoadedSpec, flag_node, flag_span, load
from trainwright.spec.source import Node

FAULTS = ("node", "rank", "controller", "time", "script", "cancel")
POLL = 0.2


@dataclass(frozen=True)
class Outcome:
    """One fault: what it cost, beside what it was allowed to."""

    fault: str
    status: Literal["pass", "fail", "skip", "error"]
    lost_steps: int = 0
    lost_seconds: float = 0.0
    allowed_steps: int = 0
    allowed_seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Baseline:
    """The same job undisturbed: what the others are held against."""

    losses: dict[int, float]
    start_seconds: float  # from submission to the first step
    step_seconds: float


@dataclass
class Watch:
    """A run that is disturbed, seen through its metrics.jsonl."""

    order: Order
    run: Run

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file of the run; a last one that is half written is left out."""
        text = self.order.shell.read(f"{self.run.where}/{name}").decode(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def losses(self) -> dict[int, float]:
        return {record["step"]: record["loss"] for record in self.lines("metrics.jsonl")}

    def last(self) -> int:
        """The newest step; after a rewind this is less than it was."""
        records = self.lines("metrics.jsonl")
        return int(records[-1]["step"]) if records else 0

    def steps_repeated(self) -> int:
        """How far the longest rewind went back, for a trainer without `start` events: it writes those steps again."""
        steps = [record["step"] for record in self.lines("metrics.jsonl")]
        return max((before - after + 1 for before, after in itertools.pairwise(steps) if after <= before), default=0)

    def longest_pause(self) -> float:
        """The longest time between two steps."""
        times = [record["time"] for record in self.lines("metrics.jsonl")]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def state(self) -> JobStatus:
        return self.order.scheduler.state(self.run.identity)

    def until(self, ready: Callable[[], bool], what: str, seconds: float) -> float:
        """Wait, and say how long it took; a job that ended meanwhile is not waited for."""
        began = time.monotonic()
        while not ready():
            if self.state().over:
                if ready():
                    break
                raise UserError(f"the job ended before {what}", where=f"{self.run.where}/logs")
            if time.monotonic() - began > seconds:
                raise UserError(f"waited {seconds:.0f} s, and not yet: {what}", where=f"{self.run.where}/logs")
            time.sleep(POLL)
        return time.monotonic() - began


@dataclass
class Drill:
    """The faults, one after the other, against one cluster."""

    order: Order
    injector: FaultInjector
    say: Callable[[str], None]
    patience: float = 600.0

    @property
    def every(self) -> int:
        training = self.order.job.training
        return (training.checkpoint.steps if training and training.checkpoint else None) or 1

    def run(self, faults: tuple[str, ...]) -> list[Outcome]:
        self.say("first the job undisturbed")
        baseline = self.baseline()
        outcomes = []
        for fault in faults:
            self.say(f"fault: {fault}")
            try:
                outcomes.append(self.one(fault, baseline))
            except UserError as error:
                outcomes.append(Outcome(fault, "error", note=str(error).splitlines()[0]))
            finally:
                self.injector.restore()
        return outcomes

    def one(self, fault: str, baseline: Baseline) -> Outcome:
        if fault == "script":
            return self.bad_script()
        if fault == "cancel":
            return self.cancelled()
        inject = {
            "node": self.injector.kill_node,
            "rank": self.injector.kill_rank,
            "controller": self.injector.restart_controller,
            "time": self.injector.reach_time_limit,
        }[fault]
        return self.disturbed(fault, inject, baseline)

    def baseline(self) -> Baseline:
        began = time.monotonic()
        watch = self.submit()
        watch.until(lambda: watch.last() >= 1, "its first step", self.patience)
        start = time.monotonic() - began
        self.end(watch)
        losses = watch.losses()
        return Baseline(losses, start, max(0.0, time.monotonic() - began - start) / max(1, len(losses)))

    def disturbed(self, fault: str, inject: Callable[[JobIdentity], str], baseline: Baseline) -> Outcome:
        """Inject the fault after the first checkpoint; the cost is the way back to the step that was reached before."""
        watch = self.submit()
        watch.until(lambda: watch.last() > self.every, f"step {self.every + 1}", self.patience)
        before = watch.last()
        note = inject(watch.run.identity)
        began = time.monotonic()
        reached = max(before, watch.last())
        while watch.last() <= reached and not watch.state().over and time.monotonic() - began < self.patience:
            time.sleep(POLL)
        seconds = time.monotonic() - began
        self.end(watch)
        # A job that saves first still does steps after the fault; the pause after them is then the cost.
        seconds = max(seconds, watch.longest_pause())
        lost = self.lost_steps(watch, reached)
        allowed = self.allowed(fault, baseline)
        same = all(
            math.isclose(baseline.losses[s], v, rel_tol=1e-6) for s, v in watch.losses().items() if s in baseline.losses
        )
        whole = set(watch.losses()) == set(baseline.losses)
        good = same and whole and lost <= allowed[0] and seconds <= allowed[1]
        note += "" if same and whole else "; the loss is not that of the undisturbed run"
        return Outcome(fault, "pass" if good else "fail", lost, seconds, *allowed, note=note)

    def lost_steps(self, watch: Watch, reached: int) -> int:
        """Steps done twice: how far behind the step that was reached the run started again."""
        events = watch.lines("events.jsonl")
        starts = [event["step"] for event in events if event["event"] in {"start", "resume"} and "step" in event]
        return max(0, reached - starts[-1]) if len(starts) > 1 else watch.steps_repeated()

    def allowed(self, fault: str, baseline: Baseline) -> tuple[int, float]:
        """From the cluster's own settings: noticing, requeueing, starting, and repeating a checkpoint interval."""
        scheduler = self.order.scheduler
        assert isinstance(scheduler, SlurmScheduler)
        slurmd, message = (seconds_in(scheduler.settings.get(k, "")) for k in ("SlurmdTimeout", "MessageTimeout"))
        expire = re.search(r"cred_expire=(\d+)", scheduler.settings.get("AuthInfo", ""))
        requeue = (int(expire[1]) if expire else 120) + 1 + seconds_in(scheduler.settings.get("KillWait", ""))
        notice = {"node": 2 * slurmd + 3 * message, "rank": message, "time": message, "controller": 2 * message}[fault]
        steps = {"node": self.every, "rank": self.every, "time": 0, "controller": 0}[fault]
        again = 0.0 if fault == "controller" else requeue + 2 * baseline.start_seconds
        return steps, notice + again + (steps + 2) * 2 * baseline.step_seconds

    def bad_script(self) -> Outcome:
        values = {"name": "missing", "script": "no/such/script.py", "nodes": 1}
        job = Node({key: flag_node(value, "the drill") for key, value in values.items()}, flag_span("the drill"))
        broken = self.order.loaded.with_jobs(job)
        began = time.monotonic()
        try:
            submission.plan(replace(self.order, loaded=broken, job=resolve_job(broken).require()))
        except UserError as error:
            return Outcome("script", "pass", 0, time.monotonic() - began, 0, 1.0, note=error.what)
        return Outcome("script", "fail", note="a job without its script was accepted")

    def cancelled(self) -> Outcome:
        watch = self.submit()
        watch.until(lambda: watch.last() >= 1, "its first step", self.patience)
        self.order.scheduler.cancel(watch.run.identity)
        began = time.monotonic()
        while not watch.state().over and time.monotonic() - began < 60:
            time.sleep(POLL)
        state, seconds = watch.state().state, time.monotonic() - began
        good = state == "cancelled"
        return Outcome("cancel", "pass" if good else "fail", 0, seconds, 0, 60.0, note=f"the job is {state}")

    def submit(self) -> Watch:
        return Watch(self.order, submission.submit(self.order, submission.plan(self.order)))

    def end(self, watch: Watch) -> None:
        began = time.monotonic()
        while not (status := watch.state()).over:
            if time.monotonic() - began > self.patience:
                raise UserError(f"the job is still {status.state} after {self.patience:.0f} s", where=watch.run.where)
            time.sleep(POLL)
        if status.state != "completed":
            raise UserError(f"the job {status.state} with status {status.exit_code}", where=f"{watch.run.where}/logs")


def drill_order(path: str, name: str, overrides: tuple[str, ...], host: str, steps: int, every: int) -> Order:
    """The order a drill repeats: a job of the spec cut short, or a small one where the spec has none."""
    loaded = load(path, overrides)
    jobs = loaded.spec.jobs
    node = loaded.node.get("jobs", job_index(loaded, name or None)) if jobs or name else small_job(loaded)
    assert node is not None
    cut = loaded.with_jobs(drill_job(node, steps, every))
    require_clean(cut)
    job = resolve_job(cut).require()
    return Order(cut, job, scheduler_for(cut.spec, job.job, host))


def small_job(loaded: LoadedSpec) -> Node:
    queue = loaded.spec.queues[0]
    most = queue.nodes or (queue.count.max if queue.count else 1)
    values = {"name": "drill", "model": "llama3.2-1b-debug", "nodes": min(2, most), "sequence": 64}
    flag = "the drill's own job"
    return Node({key: flag_node(value, flag) for key, value in values.items()}, flag_span(flag))


def drill_job(base: Node, steps: int, every: int) -> Node:
    """The job cut short: long enough to be disturbed after a checkpoint."""
    kept = base.get("checkpoint", "to")
    every_steps = flag_node(every, f"--every {every}")
    checkpoint = Node({"steps": every_steps, **({"to": kept} if kept else {})}, every_steps.span)
    changed = {
        "steps": flag_node(steps, f"--steps {steps}"),
        "checkpoint": checkpoint,
        "requeue": flag_node(True, "drill"),
    }
    return replace(base, value={**base.value, **changed})


def faults_for(order: Order) -> FaultInjector:
    scheduler = order.scheduler
    if not isinstance(scheduler, SlurmScheduler):
        raise UserError(f"a drill needs Slurm, and this job runs on {scheduler.name}", fix="use a Slurm cluster")
    if order.job.spec.platform == "local":
        from trainwright.platforms.local import state

        return LocalFaults(state.require(order.job.spec.name), scheduler)
    return SlurmFaults(scheduler)


def seconds_in(text: str) -> float:
    """`5 sec` is 5."""
    number = re.match(r"\d+", text.strip())
    return float(number[0]) if number else 0.0
