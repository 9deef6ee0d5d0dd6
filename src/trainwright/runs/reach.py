"""Finding the scheduler of a job again, from a spec or from an earlier run, and what it says about the run."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainwright.errors import UserError
from trainwright.platforms.base import find, platform_named
from trainwright.runs import store
from trainwright.runs.store import Run
from trainwright.schedulers.base import ENDED, JobStatus, Scheduler
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.shell import Gone, Shell

if TYPE_CHECKING:
    from trainwright.schedulers.slurm import SlurmScheduler
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec

RECENT = 30 * 24 * 3600.0  # seconds; a cluster without a run for longer may be gone, and is no longer asked
CANCELLED = "cancelled"  # the event that `trainwright cancel` leaves


def scheduler_for(spec: Spec, job: Job, host: str = "", chosen: str = "", dry: bool = False) -> Scheduler:
    """Where a job of a spec goes: the scheduler or head node that the user named, or the platform's own. A dry
    run only writes the script, so a local cluster need not be up for it."""
    if chosen == "process":
        return ProcessScheduler()
    platform = platform_named(spec.platform)
    return platform.preview(spec, job, host) if dry else platform.scheduler(spec, job, host)


def scheduler_of(run: Run) -> Scheduler:
    """The scheduler a run was handed to. Nothing is asked of it yet, so this also works while it is down."""
    if run.scheduler == "process":
        return ProcessScheduler()
    return platform_named(run.platform).scheduler_again(run.cluster, run.host, run.at)


def slurm_named(target: str | None, host: str = "") -> SlurmScheduler:
    """The Slurm of the cluster that a spec or a name means; without one, the Slurm of this machine or of `host`."""
    from trainwright.schedulers.slurm import SlurmScheduler

    if not target:
        return SlurmScheduler(Shell(host=host), python="python3") if host else SlurmScheduler()
    platform, name, spec = find(target)
    if not host and (spec is None or spec.platform == "local"):
        from trainwright.platforms.local import state
        from trainwright.platforms.local.platform import scheduler_on

        return scheduler_on(state.require(name))
    if not host and spec is not None and spec.platform == "slurm":
        host = spec.head.host or ""
    scheduler = platform.scheduler_again(name, host, {})
    if not isinstance(scheduler, SlurmScheduler):
        fix = "on Kubernetes run `python -m trainwright.health` in a DaemonSet"
        raise UserError(f"cluster {name} has no Slurm", where=target, fix=fix)
    return scheduler


def shell_of(run: Run) -> Shell:
    """How to read a run's files: in place, or over ssh."""
    return Shell(host=run.host)


def log_lines(run: Run, rank: int | None = None) -> Iterator[str]:
    """What a run has logged so far, each line with its source."""
    return (f"[{source}] {line}" for source, line in scheduler_of(run).logs(run.identity, run.where, {}, rank))


def run_state(run: Run, scheduler: Scheduler | None = None) -> JobStatus:
    """What became of a run: `unknown`, with what was last seen, where the scheduler does not answer."""
    if not run.job_id:
        return JobStatus("", run.name, "unknown", run.scheduler, reason="it was never submitted")
    seen = store.last_seen(run)
    if seen and seen.status.over:
        return seen.status
    try:
        status = (scheduler or scheduler_of(run)).state(run.identity)
    except UserError as error:
        status = JobStatus(run.job_id, run.name, "unknown", run.scheduler, run.cluster, run.queue, reason=error.what)
        if isinstance(error, Gone):
            status = dataclasses.replace(status, state="lost")
    if status.state in {"unknown", "lost"}:
        status = _from_events(run, status)
    if status.state == "unknown":
        when = f"last seen {seen.status.state} at {clock(seen.time)}" if seen else "never seen"
        return dataclasses.replace(status, reason=f"{status.reason}; {when}")
    store.remember(run, status, seen)
    return status


def all_jobs(target: str | None = None, host: str = "") -> list[JobStatus]:
    """Every job that waits or runs, with one question to each scheduler this machine knows, or of the cluster that a
    spec, a name or a head node means. The runs of a scheduler that does not answer are listed as unknown."""
    jobs = [] if target or host else ProcessScheduler().jobs()
    for scheduler, runs in schedulers_of(target, host) if target or host else known_schedulers():
        try:
            jobs += scheduler.jobs()
        except UserError as error:
            lost = JobStatus("", "", "unknown", scheduler.name, scheduler.cluster, reason=error.what)
            jobs += [run_state(run, scheduler) for run in runs] or [lost]
    return [job for job in jobs if not job.over]


def schedulers_of(target: str | None, host: str = "") -> list[tuple[Scheduler, list[Run]]]:
    """The schedulers of one cluster, whether a run went there or not."""
    if not target:
        return [(slurm_named(None, host), [])]
    platform, name, spec = find(target)
    if spec is None:
        known = [each for each in known_schedulers() if each[0].cluster == name]
        if not known:
            fix = "name its spec, or one of the clusters that `trainwright jobs` and `trainwright status` show"
            raise UserError(f"no cluster {name!r} is known to this machine", fix=fix)
        return known
    from trainwright.spec.job import Job

    runs = [run for run in _open_runs() if run.cluster == name]
    jobs = spec.jobs or (Job(name="jobs"),)
    places = {tuple(one.at.values()): one for one in (platform.scheduler(spec, job, host) for job in jobs)}
    return [(one, [run for run in runs if run.at == dict(one.at)]) for one in places.values()]


def known_schedulers() -> list[tuple[Scheduler, list[Run]]]:
    """The local clusters, and every place of a recent run that is not known to be over; each with those runs."""
    from trainwright.platforms.local.platform import local_schedulers

    places: dict[tuple[str, ...], tuple[Scheduler, list[Run]]] = {
        _place(each.cluster, "", each.at.values()): (each, []) for each in local_schedulers()
    }
    for run in _open_runs():
        place = _place(run.cluster, run.host, run.at.values())
        if place not in places:
            places[place] = (scheduler_of(run), [])
        places[place][1].append(run)
    return list(places.values())


def remember_runs(cluster: str) -> None:
    """Keep the states of a cluster's runs, before it is changed or taken down and no longer knows them."""
    for run in _open_runs():
        if run.cluster == cluster and not run.host:
            run_state(run)


def only_live(word: str) -> Run:
    """The run that a word means to a verb that ends jobs: the one of those it fits that has not ended; the newest where
    all have. Between two that may still run it does not choose."""
    runs = store.matching(word)
    live = [run for run in runs if run.job_id and run_state(run).state not in ENDED] if len(runs) > 1 else []
    if len(live) > 1:
        names = ", ".join(f"{run.name} ({run.cluster or run.scheduler})" for run in live)
        raise UserError(f"{word!r} fits {len(live)} runs that have not ended: {names}", fix="name one of them in full")
    return live[0] if live else runs[0]


def cancel(run: Run) -> None:
    """End a run's job, and record in its folder that this was asked for, for when its cluster is gone."""
    scheduler_of(run).cancel(run.identity)
    event = {"time": time.time(), "source": "job", "event": CANCELLED, "job": run.job_id}
    with (run.folder / "events.jsonl").open("a", encoding="utf-8") as events:
        events.write(json.dumps(event) + "\n")


def clock(moment: float) -> str:
    """A time for people: with the day where it was not today."""
    today = time.strftime("%Y-%m-%d") == time.strftime("%Y-%m-%d", time.localtime(moment))
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _open_runs() -> Iterator[Run]:
    for run in store.all_runs():
        if run.scheduler == "process" or not run.job_id or time.time() - run.created > RECENT:
            continue
        seen = store.last_seen(run)
        if seen is None or not seen.status.over:
            yield run


def _place(cluster: str, host: str, at: Iterable[str]) -> tuple[str, ...]:
    return (cluster, host, *at)


def _from_events(run: Run, unknown: JobStatus) -> JobStatus:
    """How the job ended by its own script, for a cluster that no longer answers."""
    path = run.folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if '"source": "job"' in line and line.endswith("}")]
    if any(event["event"] == CANCELLED for event in events):
        return dataclasses.replace(unknown, state="cancelled", reason="")
    if not events or events[-1]["event"] != "ended":
        return unknown
    code = int(events[-1]["code"])
    return dataclasses.replace(unknown, state="completed" if code == 0 else "failed", exit_code=code, reason="")
