"""Finding the scheduler of a job again: from a spec, or from a run that was submitted earlier, from any terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.errors import UserError
from trainwright.platforms.base import PLATFORMS, platform_named
from trainwright.runs import store
from trainwright.runs.follow import new_lines, streamed_lines
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, Scheduler
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:
    from trainwright.spec.model import Job, Spec

SLURM_PLATFORMS = frozenset({"parallelcluster", "hyperpod", "local"})
RECENT = 30 * 24 * 3600.0  # seconds; a place that had no run for so long may be gone, and is no longer asked
CANCELLED = "cancelled"  # the event that `trainwright cancel` leaves
CONTAINER_SCHEDULERS = frozenset({"kubernetes", "batch"})


def scheduler_for(spec: Spec, job: Job, host: str = "", chosen: str = "", dry: bool = False) -> Scheduler:
    """Where a job of a spec goes: the scheduler the user chose, the head node he named, or the platform's own. A dry
    run only writes the script, so a local cluster need not be up for it."""
    if chosen == "process":
        return ProcessScheduler()
    if host:
        if spec.platform not in SLURM_PLATFORMS:
            raise UserError(
                f"--host names a Slurm head node, and platform {spec.platform} has none", fix="leave it out"
            )
        return SlurmScheduler(Shell(host=host), spec.name, python="python3", hyperpod=spec.platform == "hyperpod")
    if spec.platform not in SLURM_PLATFORMS:
        from trainwright.platforms.containers import container_scheduler

        return container_scheduler(spec, job)
    if spec.platform in PLATFORMS:
        platform = platform_named(spec.platform)
        return platform.preview(spec) if dry else platform.scheduler(spec.name, spec)
    return SlurmScheduler(Shell(), spec.name, hyperpod=spec.platform == "hyperpod")


def scheduler_of(run: Run) -> Scheduler:
    """The scheduler a run was handed to."""
    if run.scheduler == "process":
        return ProcessScheduler()
    if run.scheduler in CONTAINER_SCHEDULERS:
        from trainwright.platforms.containers import scheduler_at

        return scheduler_at(run.scheduler, run.cluster, run.at)
    if run.host:
        return SlurmScheduler(Shell(host=run.host), cluster=run.cluster)
    if run.platform in PLATFORMS:
        return platform_named(run.platform).scheduler(run.cluster, None)
    return SlurmScheduler(Shell(), cluster=run.cluster)


def shell_of(run: Run) -> Shell:
    """How to read a run's files: in place, or over ssh."""
    return Shell(host=run.host) if run.host else Shell()


def log_lines(run: Run, rank: int | None = None) -> Callable[[], Iterator[str]]:
    """What a run's logs gained since the last call: from its folder, or from the API where images run."""
    if run.scheduler in CONTAINER_SCHEDULERS:
        scheduler: Any = scheduler_of(run)
        return partial(streamed_lines, scheduler, run.job_id, {}, rank)
    return partial(new_lines, run, shell_of(run), {}, rank)


def all_jobs() -> list[JobStatus]:
    """Every job that waits or runs, on every scheduler this machine knows: one question to each, not one a job."""
    found = ProcessScheduler().jobs()
    for scheduler in known_schedulers():
        try:
            found += scheduler.jobs()
        except UserError as error:  # one cluster that is gone or does not answer must not hide the others
            found.append(JobStatus("", "", "unknown", scheduler.name, scheduler.cluster, reason=error.what))
    return [job for job in found if not job.over]


def known_schedulers() -> list[Scheduler]:
    """The local clusters, and every place a run was sent to lately."""
    from trainwright.platforms.local import life, state

    records = [record for name in state.names() if (record := state.read(name)) and life.daemons_alive(record)]
    local = platform_named("local")
    found: list[Scheduler] = [local.scheduler(record.cluster.name, None) for record in records]
    others = {
        (run.host, run.cluster, *run.at.values()): run
        for run in store.all_runs()
        if time.time() - run.created < RECENT
        and (run.scheduler in CONTAINER_SCHEDULERS or (run.scheduler == "slurm" and run.host))
    }
    return [*found, *(scheduler_of(run) for run in others.values())]


def run_state(run: Run) -> JobStatus:
    """What became of a run; a cluster that was taken down leaves what its folder says."""
    if not run.job_id:
        return JobStatus("", run.job, "unknown", run.scheduler, reason="it was never submitted")
    try:
        _same_cluster(run)
        status = scheduler_of(run).state(run.job_id)
    except UserError as error:
        status = JobStatus(run.job_id, run.job, "unknown", run.scheduler, run.cluster, reason=error.what)
    return status if status.state != "unknown" else _from_events(run, status)


def cancel(run: Run) -> None:
    """End a run's job, and keep in its folder that this was wished, for when its cluster is gone."""
    import json

    scheduler_of(run).cancel(run.job_id)
    with (run.folder / "events.jsonl").open("a", encoding="utf-8") as events:
        events.write(json.dumps({"time": time.time(), "source": "job", "event": CANCELLED, "job": run.job_id}) + "\n")


def _same_cluster(run: Run) -> None:
    """A local cluster that was made anew counts its jobs from 1 again: its job 1 is not this run's."""
    if run.platform == "local" and run.scheduler == "slurm":
        from trainwright.platforms.local import state

        if state.require(run.cluster).created > (run.submitted or run.created):
            raise UserError(f"cluster {run.cluster} was started anew since")


def _from_events(run: Run, unknown: JobStatus) -> JobStatus:
    """The last word of the job's own script, for a cluster that is no longer there to ask."""
    import dataclasses
    import json

    lines = (Path(run.folder) / "events.jsonl").read_text().splitlines() if _has_events(run) else []
    events = [json.loads(line) for line in lines if '"source": "job"' in line]
    if any(event["event"] == CANCELLED for event in events):
        return dataclasses.replace(unknown, state="cancelled", reason="")
    if not events or events[-1]["event"] != "ended":
        return unknown
    code = int(events[-1]["code"])
    return dataclasses.replace(unknown, state="completed" if code == 0 else "failed", exit_code=code, reason="")


def _has_events(run: Run) -> bool:
    return (run.folder / "events.jsonl").exists()
