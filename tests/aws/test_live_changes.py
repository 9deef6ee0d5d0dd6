"""Changes of a cluster that is up: those that it takes while jobs run, those that need its nodes stopped, and runs that
are ended in the middle of one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from standin.harness import SPEC, Cloud
from standin.tool import StandInTool
from test_cut_points import Forks

from trainwright.errors import UserError
from trainwright.platforms.apply.build import refuse_impossible
from trainwright.platforms.apply.steps import run
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild
from trainwright.platforms.plan.tree import ClusterPlan

MORE = SPEC.replace("queues:\n", "queues:\n  - {name: debug, instance: g5.2xlarge, count: 1}\n")
WHOLE = ["m5.8xlarge running x1", "p5.48xlarge running x2"]


def change(cloud: Cloud, plan: ClusterPlan, force: bool = False) -> None:
    """What `up` does with a changed spec."""
    build = ParallelClusterBuild(plan, cloud.account, StandInTool(cloud.account))
    stop = refuse_impossible(build.changes(build.existing()), force)
    run(build.steps(stop), lambda steps, step: None, cloud.world.clock)


def test_a_queue_comes_and_goes(cloud: Cloud, tmp_path: Path) -> None:
    plain, more = cloud.planned(tmp_path), cloud.planned(tmp_path, MORE)
    cloud.up(plain)
    change(cloud, more)
    assert cloud.census()["instance"] == ["g5.2xlarge running x1", *WHOLE], "a new queue needs no stop"
    before = cloud.calls()
    with pytest.raises(UserError, match="needs the compute nodes stopped"):
        change(cloud, plain)
    made = {call["action"] for call in cloud.world.faults.calls[before:]}
    assert all(action.startswith(("Describe", "Get", "List")) for action in made), "nothing happened yet"
    change(cloud, plain, force=True)
    assert cloud.census()["instance"] == WHOLE, "and the nodes were started again"
    actions = [call["action"] for call in cloud.world.faults.calls[before:]]
    assert [a for a in actions if a in ("UpdateItem", "UpdateStack")] == ["UpdateItem", "UpdateStack", "UpdateItem"]


def test_an_update_that_never_began_is_not_taken_for_done(cloud: Cloud, tmp_path: Path) -> None:
    """pcluster uploads the new file first; only the version that the stack names is deployed."""
    plain, more = cloud.planned(tmp_path), cloud.planned(tmp_path, MORE)
    cloud.up(plain)
    build = ParallelClusterBuild(more, cloud.account, StandInTool(cloud.account))
    build.outputs |= {key: dict(stack.outputs) for key, stack in build.existing().items()}
    StandInTool(cloud.account)._upload("cut", build.config())
    assert [change.path for change in build.changes(build.existing()).changes] == ["Scheduling.SlurmQueues[debug]"]
    change(cloud, more)
    assert cloud.census()["instance"] == ["g5.2xlarge running x1", *WHOLE]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_ended_change_goes_on(cloud: Cloud, tmp_path: Path) -> None:
    plain, more = cloud.planned(tmp_path), cloud.planned(tmp_path, MORE)
    cloud.up(plain)
    change(cloud, more)
    before = cloud.calls()

    def back() -> None:
        change(cloud, plain, force=True)

    change(cloud, plain, force=True)
    expected = {kind: names for kind, names in cloud.census().items() if kind != "log group"}
    points = [(number, when) for number in range(1, cloud.calls() - before + 1) for when in ("before", "after")]
    change(cloud, more)
    forks = Forks(cloud, set(random.Random(3).sample(points, 24)), back, expected)
    forks.run(back)
    assert forks.count >= 20
    assert not forks.failed
