"""A drill against a real local cluster: every fault is caused, measured and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from counting_jobs import order, plan_counting
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.platform import scheduler_on
from trainwright.runs import submission
from trainwright.runs.drill import FAULTS, Drill, Watch, faults_for, seconds_in
from trainwright.runs.faults import SlurmFaults
from trainwright.runs.store import Run
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.slurm import SlurmScheduler

SPEC = {"name": "fire", "platform": "local", "queues": [{"name": "train", "nodes": 3, "cpus": 2}]}
ARGS = ("--steps=40", "--pause=0.2", "--every=5")
MakeDrill = Callable[..., Drill]


@pytest.fixture
def drill(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> MakeDrill:
    def make(*args: str) -> Drill:
        record = life.up(LocalCluster("fire", (LocalQueue("train", 3, cpus=2),), settings=(("SlurmdTimeout", "3"),)))
        monkeypatch.setattr(submission, "plan", plan_counting(*args))
        ordered = order(SPEC, {"nodes": 2, "steps": 40, "checkpoint": {"steps": 5}}, scheduler_on(record))
        return Drill(ordered, faults_for(ordered), print, 120)

    return make


@pytest.mark.slurm
@pytest.mark.slow
def test_every_fault_passes_on_a_good_job(drill: MakeDrill) -> None:
    outcomes = drill(*ARGS).run(FAULTS)
    assert [(one.fault, one.status) for one in outcomes] == [(fault, "pass") for fault in FAULTS], outcomes
    lost = {one.fault: one.lost_steps for one in outcomes}
    assert lost["controller"] == lost["time"] == lost["script"] == 0


@pytest.mark.slow
@pytest.mark.slurm
def test_a_job_that_never_saves_fails_the_drill(drill: MakeDrill) -> None:
    outcome = drill("--steps=40", "--pause=0.2", "--every=1000").run(("rank",))[0]
    assert outcome.status == "fail"
    assert outcome.lost_steps > outcome.allowed_steps


@pytest.mark.slurm
@pytest.mark.slow
def test_an_administrators_commands_cause_the_same_faults(drill: MakeDrill) -> None:
    """What a drill does on a cluster of machines, where nobody can pull a plug from here."""
    ordered = drill(*ARGS)
    assert isinstance(ordered.order.scheduler, SlurmScheduler)
    ordered.injector = SlurmFaults(ordered.order.scheduler)
    outcomes = ordered.run(("node", "rank"))
    assert [(one.fault, one.status) for one in outcomes] == [("node", "pass"), ("rank", "pass")], outcomes
    assert life.status("fire").queues[0].states == {"idle": 3}, "the node was not given back"


@pytest.mark.parametrize(
    ("steps", "starts", "lost"),
    [
        ([*range(1, 9), *range(1, 41)], [], 8),  # nobody looked while it was behind step 8
        ([*range(1, 8), *range(6, 41)], [], 2),
        ([*range(1, 41)], [], 0),
        ([*range(1, 41)], [0, 5], 3),  # our trainer drops the rows it will write again, and says where it starts
    ],
)
def test_lost_steps_are_read_from_what_the_run_wrote(
    own_home: Path, steps: list[int], starts: list[int], lost: int
) -> None:
    run = Run(name="one", job="one", scheduler="process")
    run.folder.mkdir(parents=True)
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in steps))
    events = [{"event": "start", "step": step} for step in starts]
    (run.folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    ordered = order(SPEC, {"nodes": 1}, ProcessScheduler())
    watch = Watch(ordered, run)
    assert Drill(ordered, SlurmFaults(SlurmScheduler()), print).lost_steps(watch, reached=8) == lost


def test_times_as_slurm_prints_them() -> None:
    assert [seconds_in(text) for text in ("5 sec", "30", "")] == [5.0, 30.0, 0.0]
