"""Two worlds for histories of runs: the real local Slurm, and a model of it that answers Slurm's commands in its words.

In both the verbs are the real ones. The model counts jobs from 1 with every start of a cluster, forgets them when it is
taken down, and says nothing while its controller is dead, as Slurm does; every job it ends goes into a log with who
asked for that."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from counting_jobs import order
from trainwright.platforms.local import change, daemons, life, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.platform import scheduler_on
from trainwright.runs import submission
from trainwright.runs.store import Run
from trainwright.schedulers.shell import Done, Gone, Shell, Unreachable
from trainwright.schedulers.slurm import SlurmScheduler

CONFIG = "AccountingStorageType = (null)\nJobCompType = jobcomp/none\n"
# Goes on until it is told how to end, by a file in its run folder.
WAITS = 'until [ -s "$TRAINWRIGHT_RUN/finish" ]; do sleep 0.05; done; exit "$(cat "$TRAINWRIGHT_RUN/finish")"'


def spec_of(cluster: str) -> dict[str, object]:
    return {"name": cluster, "platform": "local", "queues": [{"name": "train", "nodes": 2, "cpus": 4}]}


@functools.cache
def resolved(cluster: str) -> submission.Order:
    """The order of the one job there is on a cluster; only its scheduler differs from start to start."""
    return order(spec_of(cluster), {"nodes": 1}, SlurmScheduler())


@dataclass
class ModelJob:
    id: str
    name: str
    state: str = "RUNNING"
    code: int = 0


@dataclass
class ModelCluster:
    """One start of a cluster."""

    name: str
    start: str
    alive: bool = True
    jobs: dict[str, ModelJob] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelShell(Shell):
    """Slurm's commands against the model, on one start of one cluster."""

    world: ModelWorld | None = field(default=None, compare=False)
    cluster: str = ""
    start: str = ""

    def run(self, command: Sequence[str], text: str = "", timeout: float = 120.0) -> Done:
        assert self.world is not None
        now = self.world.clusters.get(self.cluster)
        if now is None or now.start != self.start:
            raise Gone(f"cannot reach {self.cluster}: the cluster is no longer up")
        if not now.alive:
            raise Unreachable(f"cannot reach {self.cluster}: slurmctld is not running")
        return getattr(self, f"_{command[0]}")(now, list(command[1:]))

    def _sbatch(self, now: ModelCluster, words: list[str]) -> Done:
        name = next(word.partition("=")[2] for word in words if word.startswith("--job-name="))
        job = ModelJob(str(len(now.jobs) + 1), name)
        now.jobs[job.id] = job
        return Done(0, f"{job.id}\n", "")

    def _squeue(self, now: ModelCluster, words: list[str]) -> Done:
        lines = [f"{j.id}|{j.state}|None|1|train-1|train|now|now|{j.name}" for j in now.jobs.values() if _live(j)]
        return Done(0, "\n".join(lines) + "\n", "")

    def _scontrol(self, now: ModelCluster, words: list[str]) -> Done:
        if words == ["show", "config"]:
            return Done(0, CONFIG, "")
        job = now.jobs.get(words[-1])
        if job is None:
            return Done(1, "", "slurm_load_jobs error: Invalid job id specified")
        code = f"{job.code}:0"
        return Done(0, f"JobId={job.id} JobName={job.name} JobState={job.state} NumNodes=1 ExitCode={code}\n", "")

    def _scancel(self, now: ModelCluster, words: list[str]) -> Done:
        name = next((word.partition("=")[2] for word in words if word.startswith("--name=")), None)
        job = now.jobs.get(words[-1])
        if job is not None and (name is None or job.name == name) and _live(job):
            job.state = "CANCELLED"
        return Done(0, "", "")


def _live(job: ModelJob) -> bool:
    return job.state in {"RUNNING", "PENDING"}


class World:
    """What a history can do beside the verbs."""

    def up(self, cluster: str) -> None: ...
    def down(self, cluster: str) -> None: ...
    def kill_controller(self, cluster: str) -> None: ...
    def finish(self, run: Run, code: int) -> None: ...
    def scheduler(self, cluster: str) -> SlurmScheduler: ...  # type: ignore[empty-body]
    def is_up(self, cluster: str) -> bool: ...  # type: ignore[empty-body]
    def controller_alive(self, cluster: str) -> bool: ...  # type: ignore[empty-body]
    def live_names(self) -> set[str]: ...  # type: ignore[empty-body]

    def settle(self, name: str) -> None:
        """Wait until a job that was told to end has ended."""

    def submit(self, cluster: str) -> Run:
        """Submit a job that waits, with a checkpoint it could be resumed from."""
        ordered = dataclasses.replace(resolved(cluster), scheduler=self.scheduler(cluster))
        planned = submission.plan(ordered)
        return self.hand_over(ordered, planned)

    def hand_over(self, ordered: submission.Order, planned: submission.Planned) -> Run:
        launch = dataclasses.replace(planned.launch, command=("bash", "-c", WAITS), requeue=False)
        script = ordered.scheduler.render(launch)
        run = submission.submit(ordered, dataclasses.replace(planned, launch=launch, script=script))
        (run.folder / "checkpoints/step-00000004").mkdir(parents=True)
        return run


@dataclass
class ModelWorld(World):
    clusters: dict[str, ModelCluster] = field(default_factory=dict)
    starts: int = 0

    def up(self, cluster: str) -> None:
        """Repair in place, or start anew."""
        if cluster in self.clusters:
            self.clusters[cluster].alive = True
            return
        self.starts += 1
        self.clusters[cluster] = ModelCluster(cluster, f"start-{self.starts}")

    def down(self, cluster: str) -> None:
        self.clusters.pop(cluster)

    def kill_controller(self, cluster: str) -> None:
        self.clusters[cluster].alive = False

    def finish(self, run: Run, code: int) -> None:
        job = self.clusters[run.cluster].jobs[run.job_id]
        job.state, job.code = ("COMPLETED" if code == 0 else "FAILED"), code
        with (run.folder / "events.jsonl").open("a") as events:  # as the job's script does
            events.write(json.dumps({"time": 0, "source": "job", "event": "ended", "code": code}) + "\n")

    def scheduler(self, cluster: str) -> SlurmScheduler:
        return self.again(cluster, self.clusters[cluster].start)

    def again(self, cluster: str, start: str) -> SlurmScheduler:
        shell = ModelShell(world=self, cluster=cluster, start=start)
        return SlurmScheduler(shell, cluster, start=start)

    def is_up(self, cluster: str) -> bool:
        return cluster in self.clusters

    def controller_alive(self, cluster: str) -> bool:
        return self.is_up(cluster) and self.clusters[cluster].alive

    def live_names(self) -> set[str]:
        return {job.name for cluster in self.clusters.values() for job in cluster.jobs.values() if _live(job)}


@dataclass
class ModelPlatform:
    """The platform `local` over the model."""

    world: ModelWorld

    def scheduler(self, spec: object, job: object, host: str = "") -> SlurmScheduler:
        return self.world.scheduler(spec.name)  # type: ignore[attr-defined]

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> SlurmScheduler:
        return self.world.again(cluster, at["start"])


class RealWorld(World):
    """The local Slurm."""

    def cluster(self, name: str) -> LocalCluster:
        return LocalCluster(name, (LocalQueue("train", 2, cpus=4),))

    def up(self, cluster: str) -> None:
        life.up(self.cluster(cluster))

    def down(self, cluster: str) -> None:
        life.down(cluster, force=True)

    def kill_controller(self, cluster: str) -> None:
        record = state.require(cluster)
        _saved(record)
        for pid, role in state.processes(record).items():
            if role == "slurmctld":
                os.kill(pid, signal.SIGKILL)
        daemons.wait_for(lambda: "slurmctld" in repair.missing(record), "slurmctld is gone", Path())

    def finish(self, run: Run, code: int) -> None:
        (run.folder / "finish").write_text(f"{code}\n")
        self.settle(run.name)

    def settle(self, name: str) -> None:
        self.wait(lambda: name not in self.live_names(), "the job ends")

    def scheduler(self, cluster: str) -> SlurmScheduler:
        return scheduler_on(state.require(cluster))

    def is_up(self, cluster: str) -> bool:
        return cluster in state.names()

    def controller_alive(self, cluster: str) -> bool:
        return self.is_up(cluster) and "slurmctld" not in repair.missing(state.require(cluster))

    def live_names(self) -> set[str]:
        """By the processes and the queue; both, as a job may wait, and a controller may be dead."""
        names = set()
        for cluster in state.names():
            record = state.require(cluster)
            names |= {words[1] for _, words in state.job_processes(record)}
            names |= {line.split()[2] for line in change.jobs_on(record)}
        return names

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        daemons.wait_for(ready, what, Path(), 30)


def _saved(record: state.Record) -> None:
    """Wait until slurmctld has written down the jobs it has: what is submitted and not saved dies with it."""
    jobs = [line.split()[1] for line in change.jobs_on(record)]
    if not jobs:
        return
    file = record.folder / "spool/ctld/job_state"
    before = file.stat().st_mtime_ns if file.exists() else 0
    daemons.run_on_head(record, ["scontrol", "update", f"jobid={jobs[-1]}", "comment=saved"])
    daemons.wait_for(lambda: file.stat().st_mtime_ns > before, "slurmctld saves its state", record.log("slurmctld"), 30)
