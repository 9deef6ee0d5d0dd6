"""A run is never taken for another: across two starts of a cluster whose job ids begin at 1 again, and while the
controller is dead."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from slurm_bench import metrics

from counting_jobs import order, submit_counting
from trainwright.cli.main import cli
from trainwright.platforms.local import daemons, life, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.local.platform import scheduler_on
from trainwright.runs import reach, store
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobIdentity

pytestmark = pytest.mark.slurm
CLUSTER = LocalCluster("twice", (LocalQueue("train", 1, cpus=2),))
SPEC = "name: twice\nplatform: local\nqueues: [{name: train, nodes: 1, cpus: 2}]\n"


@pytest.fixture
def submit(module_home: Path) -> Callable[..., Run]:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    for name in state.names():
        life.down(name, force=True)

    def submit(*args: str) -> Run:
        return submit_counting(order(yaml.safe_load(SPEC), {}, scheduler_on(state.require("twice"))), *args)

    return submit


def tell(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), catch_exceptions=False)


def running(run: Run) -> None:
    daemons.wait_for(lambda: len(metrics(run)) > 1, "it makes steps", run.folder / "job.log")


def test_a_run_of_an_earlier_start_is_lost_and_cancels_nobody(submit: Callable[..., Run]) -> None:
    life.up(CLUSTER)
    first = submit("--steps=100000", "--pause=0.1")
    running(first)
    life.down("twice", force=True)
    life.up(CLUSTER)
    second = submit("--steps=100000", "--pause=0.1")
    assert first.job_id == second.job_id == "1"
    running(second)
    assert "is over already: lost" in tell("cancel", first.name).stderr
    assert reach.run_state(second).state == "running", "cancel ended another run's job"
    states = {fact["run"]: fact["state"] for fact in json.loads(tell("runs", "--json").stdout)}
    assert (states[first.name], states[second.name]) == ("lost", "running")
    assert store.find("1") == second, "a bare number means the newest run that had it"

    # The same number under another name is another job, also within one start.
    scheduler = reach.scheduler_of(second)
    stranger = JobIdentity("1", "count-of-somebody-else", second.start)
    assert scheduler.state(stranger).state == "unknown"
    scheduler.cancel(stranger)
    assert reach.run_state(second).state == "running"
    reach.cancel(second)
    daemons.wait_for(lambda: reach.run_state(second).state == "cancelled", "it is cancelled", Path(), 20)


def test_without_a_controller_the_answer_is_unknown(submit: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    record = life.up(CLUSTER)
    run = submit("--steps=100000", "--pause=0.1")
    running(run)
    assert reach.run_state(run).state == "running"
    [pid] = [pid for pid, role in state.processes(record).items() if role == "slurmctld" and repair._plays(pid, role)]
    os.kill(pid, signal.SIGKILL)
    daemons.wait_for(lambda: "slurmctld" in repair.missing(record), "slurmctld is gone", Path())

    jobs = tell("jobs")
    assert jobs.exit_code == 1
    assert run.name in jobs.stdout
    assert "cannot reach twice" in jobs.stdout
    assert "last seen running at" in jobs.stdout
    assert tell("status").exit_code == 1
    shown = tell("status", "twice")
    assert "slurmctld is not running; `trainwright up SPEC` restarts it, and jobs go on" in shown.stdout
    cancelled = CliRunner().invoke(cli, ["cancel", run.name])
    assert cancelled.exit_code == 1
    assert "rank 0 of 1" in tell("logs", run.name).stdout, "the logs are files of this machine"
    assert tell("runs", "--json").exit_code == 0
    assert tell("up", str(tmp_path / "spec.yaml")).exit_code == 0
    daemons.wait_for(lambda: reach.run_state(run).state != "unknown", "it is known again", Path(), 20)
    life.down("twice", force=True)
