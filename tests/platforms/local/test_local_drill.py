"""A drill against a real local cluster: every fault is caused, measured and judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.platform import LocalPlatform
from trainwright.runs.accidents import SlurmAccidents
from trainwright.runs.drill import FAULTS, Drill, Watch, accidents_for, drill_job, seconds_in
from trainwright.runs.store import Run
from trainwright.runs.submission import Order
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.model import Job, Queue, Spec

COUNTING = Path(__file__).parents[2] / "schedulers" / "counting.py"


def drill(args: tuple[str, ...]) -> Drill:
    life.up(LocalCluster("fire", (LocalQueue("train", 3, cpus=2),), settings=(("SlurmdTimeout", "3"),)))
    spec = Spec(name="fire", platform="local", queues=(Queue(name="train", nodes=3, cpus=2),))
    job = drill_job(Job(name="count", model="counting", nodes=2, args=args), 40, 5)
    order = Order(
        spec,
        job,
        LocalPlatform().scheduler("fire", None),
        lambda s, job, *_: (sys.executable, str(COUNTING), *job.args),
    )
    return Drill(order, accidents_for(order), print, 120)


@pytest.mark.slurm
@pytest.mark.slow
def test_every_fault_passes_on_a_good_job(slurm: Path) -> None:
    outcomes = drill(("--steps=40", "--pause=0.2", "--every=5")).run(FAULTS)
    assert [(one.fault, one.status) for one in outcomes] == [(fault, "pass") for fault in FAULTS], outcomes
    lost = {one.fault: one.lost_steps for one in outcomes}
    assert lost["controller"] == lost["time"] == lost["script"] == 0


@pytest.mark.slow
@pytest.mark.slurm
def test_a_job_that_never_saves_fails_the_drill(slurm: Path) -> None:
    outcome = drill(("--steps=40", "--pause=0.2", "--every=1000")).run(("rank",))[0]
    assert outcome.status == "fail"
    assert outcome.lost_steps > outcome.allowed_steps


@pytest.mark.slurm
@pytest.mark.slow
def test_an_administrators_commands_cause_the_same_faults(slurm: Path) -> None:
    """What a drill does on a cluster of machines, where nobody can pull a plug from here."""
    ordered = drill(("--steps=40", "--pause=0.2", "--every=5"))
    assert isinstance(ordered.order.scheduler, SlurmScheduler)
    ordered.accidents = SlurmAccidents(ordered.order.scheduler)
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
    spec = Spec(name="fire", platform="local", queues=(Queue(name="train"),))
    order = Order(spec, Job(name="one"), ProcessScheduler(), lambda *_: ())
    watch = Watch(order, run)
    assert Drill(order, SlurmAccidents(SlurmScheduler()), print).lost_steps(watch, reached=8) == lost


def test_times_as_slurm_prints_them() -> None:
    assert [seconds_in(text) for text in ("5 sec", "30", "")] == [5.0, 30.0, 0.0]
