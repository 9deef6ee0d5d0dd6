"""`up`, `status` and `down` of HyperPod on the stand-in: order, what a change does, what fails, and an end at any
call."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin.harness import HYPERPOD, HYPERPOD_EKS, REGION, Cloud
from test_cut_points import cut

from trainwright.platforms.apply.build import refuse_impossible
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.apply.target import on_aws
from trainwright.platforms.hyperpod.apply import HyperPodStatus
from trainwright.platforms.hyperpod.eks_apply import HyperPodEksStatus
from trainwright.platforms.hyperpod.platform import way_to


def test_a_cluster_comes_up_is_shown_and_goes(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, HYPERPOD)
    steps = [step.key for step in cloud.up()]
    assert steps[-3:] == ["scripts", "key", "hyperpod"], "nodes fetch their scripts when the cluster is made"
    whole = cloud.census()
    assert whole["hyperpod node"] == ["cut controller ml.m5.8xlarge x1", "cut train ml.p5.48xlarge x2"]
    assert whole["instance"] == [], "they run in SageMaker's account"
    status = HyperPodStatus(cloud.account, "cut").read()
    assert status is not None
    assert (status.state, status.problems, status.platform) == ("running", (), "hyperpod")
    assert [(q.name, q.most, q.gpus, q.states) for q in status.queues] == [("train", 2, 8, {"running": 2})]
    assert status.head is not None
    assert status.usd_hour > 100
    place = on_aws("cut", REGION)
    assert place is not None
    assert place.platform.name == "hyperpod"
    way = way_to("cut", REGION)
    assert way.head.id.startswith("sagemaker-cluster:")
    assert way.head.id.endswith(f"_controller-{status.head.name}")
    assert (way.user, way.has_ssh, way.direct) == ("ubuntu", True, False)
    cloud.up()
    assert cloud.census() == whole, "a second run changes nothing"
    assert cloud.down(data=False) == ["bucket", "lustre-fsx", "network"]
    assert cloud.census()["hyperpod node"] == []
    cloud.down()
    assert (cloud.census()["stack"], cloud.census()["vpc"], cloud.census()["key"]) == ([], [], [])


def test_a_queue_grows_and_does_not_shrink_by_itself(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, HYPERPOD)
    cloud.up()
    more = cloud.planned(tmp_path, HYPERPOD.replace("count: 2", "count: 3"))
    build = cloud.build(more)
    changes = build.changes(build.existing())
    assert not refuse_impossible(changes, force=False)
    assert {change.effect for change in changes.changes} == {"live"}
    cloud.up(more)
    assert cloud.census()["hyperpod node"][1] == "cut train ml.p5.48xlarge x3"
    less = cloud.build(cloud.planned(tmp_path, HYPERPOD.replace("count: 2", "count: 1")))
    with pytest.raises(Exception, match="their jobs end"):
        refuse_impossible(less.changes(less.existing()), force=False)
    other = cloud.build(cloud.planned(tmp_path, HYPERPOD.replace("p5.48xlarge", "p5en.48xlarge")))
    with pytest.raises(Exception, match="cannot be changed on a cluster that is up"):
        refuse_impossible(other.changes(other.existing()), force=True)


def test_a_cluster_that_fails_says_why_and_the_next_run_makes_it(cloud: Cloud, tmp_path: Path) -> None:
    from standin.faults import Failure

    cloud.planned(tmp_path, HYPERPOD)
    reason = "Lifecycle scripts did not run successfully. Ensure the scripts exist in provided S3 path"
    cloud.world.faults.failures = [Failure("cut-hyperpod", "Cluster", "create", reason, 1)]
    with pytest.raises(BuildFailed, match="Lifecycle scripts did not run"):
        cloud.up()
    cloud.world.faults.failures = []
    cloud.up()
    assert len(cloud.census()["hyperpod node"]) == 2


def test_on_eks_nodes_join_after_the_chart_and_leave_before_the_control_plane(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, HYPERPOD_EKS)
    steps = [step.key for step in cloud.up()]
    assert steps.index("chart-hyperpod-dependencies") < steps.index("hyperpod")
    assert "nodes-train" not in steps, "HyperPod brings them"
    whole = cloud.census()
    assert whole["hyperpod node"] == ["cut train ml.p5.48xlarge x2"]
    status = HyperPodEksStatus(cloud.account, "cut").read()
    assert status is not None
    assert (status.state, status.problems, status.platform) == ("running", (), "hyperpod-eks")
    assert {queue.name: queue.states for queue in status.queues} == {"system": {"running": 2}, "train": {"running": 2}}
    cloud.up()
    assert cloud.census() == whole, "a second run changes nothing"
    cloud.down()
    left = cloud.census()
    assert (left["stack"], left["hyperpod node"], left["interface"], left["vpc"]) == ([], [], [], [])


@pytest.mark.slow
@pytest.mark.long
def test_an_ended_run_of_hyperpod_on_eks_goes_on_from_anywhere(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, HYPERPOD_EKS)
    assert cut(cloud, 14, seed=7, kept=1) >= 50


@pytest.mark.slow
@pytest.mark.long
def test_an_ended_run_of_hyperpod_goes_on_from_anywhere(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, HYPERPOD)
    assert cut(cloud, 14, seed=6, kept=1) >= 50
