"""`up`, `status` and `down` of EKS on the stand-in, by stacks of our own and by eksctl: order, what is left outside the
stacks, programs that are missing or were ended, and an end at any call."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standin.eks import IMAGE
from standin.faults import Failure
from standin.harness import EKS, REGION, Cloud
from standin.programs import StandInPrograms
from test_cut_points import cut

from trainwright.errors import UserError
from trainwright.platforms.apply.prepare import Prepared
from trainwright.platforms.apply.remove import JobsOnCluster
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.eks.apply.build import EksBuild
from trainwright.platforms.eks.apply.sizes import GroupSizes
from trainwright.platforms.eks.apply.status import EksStatus

WAYS = {"own": ("kubectl", "helm"), "eksctl": ("kubectl", "helm", "eksctl")}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, cloud: Cloud, tmp_path: Path) -> str:
    cloud.programs = StandInPrograms(cloud.world, REGION, WAYS[request.param])
    cloud.planned(tmp_path, EKS)
    return str(request.param)


def cluster(cloud: Cloud) -> Any:
    return cloud.world.region(REGION).eks.find("cut")


def add(cloud: Cloud, kind: str, name: str, **more: Any) -> None:
    """An object that somebody made on the cluster."""
    meta = {"name": name, "namespace": "train", "labels": {"app.kubernetes.io/managed-by": "trainwright"}}
    cluster(cloud).objects[kind, "train", name] = {"metadata": meta, **more}


def tags_of(queue: str) -> list[dict[str, str]]:
    """The tags that Karpenter and eksctl put on the nodes of a queue: those of the plan."""
    tags = {"trainwright:cluster": "cut", "trainwright:queue": queue}
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def test_a_cluster_comes_up_and_goes_with_all_that_kubernetes_made(cloud: Cloud, way: str) -> None:
    cloud.up()
    whole = cloud.census()
    assert whole["node group"] == ["cut/system 2-3 2 x1", "cut/train 1-2 1 x1"]
    assert whole["instance"] == ["m5.large running x2", "p5.48xlarge running x1"]
    assert all(release.endswith("deployed x1") for release in whole["release"])
    assert {"ClusterQueue  cut-train x1", "ServiceAccount train trainwright x1"} <= set(whole["object"])
    assert "coredns" in whole["eks cluster"][0]
    assert "('train', 'trainwright')" in whole["eks cluster"][0]
    status = EksStatus(cloud.account, "cut").read()
    assert status is not None
    assert (status.state, status.problems, status.platform) == ("running", (), "eks")
    rows = {queue.name: (queue.least, queue.most, queue.states) for queue in status.queues}
    assert rows == {"system": (2, 3, {"running": 2}), "train": (1, 2, {"running": 1})}
    assert status.usd_hour > 55
    cloud.up()
    assert cloud.census() == whole, "a second up changes nothing"

    ec2 = cloud.world.client("ec2", REGION)
    subnet = cluster(cloud).subnets[0]
    card = ec2.create_network_interface(SubnetId=subnet, Description="ELB")["NetworkInterface"]["NetworkInterfaceId"]
    add(cloud, "Service", "web", spec={"type": "LoadBalancer"}, interfaces=[card])
    volume = ec2.create_volume(AvailabilityZone="us-east-2a", Size=100)["VolumeId"]
    claim = {"claimRef": {"namespace": "train", "name": "scratch"}, "persistentVolumeReclaimPolicy": "Delete"}
    add(cloud, "PersistentVolume", "pv", spec=claim, volume=volume)
    add(cloud, "PersistentVolumeClaim", "scratch", spec={})
    add(cloud, "Pod", "rank-0", spec={}, status={"phase": "Running"})
    before = cloud.census()
    with pytest.raises(JobsOnCluster, match="train/rank-0"):
        cloud.down()
    del cluster(cloud).objects["Pod", "train", "rank-0"]
    with pytest.raises(UserError, match="train/scratch") as refused:
        cloud.down()
    assert "--delete-data volumes" in refused.value.fix
    assert cloud.census()["instance"] == before["instance"], "nothing is done"
    cloud.more_data = ("volumes",)
    cloud.down()
    left = {kind: names for kind, names in cloud.census().items() if names and kind != "log group"}
    assert left == {"bucket": ["the-data x1"]}, "load balancer, volume, forgotten interface and group are gone"


def test_forced_jobs_end_before_the_claim_that_they_use(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, EKS)
    cloud.up()
    uses = {"volumes": [{"persistentVolumeClaim": {"claimName": "fsx"}}]}
    add(cloud, "PyTorchJob", "run-1", spec={})
    add(cloud, "Pod", "run-1-master-0", spec=uses, status={"phase": "Running"})
    add(cloud, "Pod", "notebook", spec=uses, status={"phase": "Pending"})
    cluster(cloud).objects["Pod", "train", "notebook"]["metadata"]["labels"] = {}
    with pytest.raises(JobsOnCluster, match=r"train/run-1-master-0 .*train/notebook"):
        cloud.down()
    cloud.down(force=True)
    assert cloud.census()["stack"] == []


def test_the_way_that_was_begun_is_kept(cloud: Cloud, tmp_path: Path) -> None:
    plan = cloud.planned(tmp_path, EKS)
    build = EksBuild(plan, cloud.account, programs=cloud.programs)
    assert "eksctl is not on this machine's path" in build.notes[0]
    cloud.up()
    late = StandInPrograms(cloud.world, REGION, WAYS["eksctl"])
    assert "it was begun so" in EksBuild(plan, cloud.account, programs=late).notes[0]
    bare = EksBuild(plan, cloud.account, programs=StandInPrograms(cloud.world, REGION, ()))
    with pytest.raises(UserError, match="kubectl and helm not on this machine's path"):
        bare.require()
    cloud.programs = StandInPrograms(cloud.world, REGION, ())
    with pytest.raises(UserError, match="kubectl not on this machine's path"):
        cloud.down()
    cloud.down(force=True)
    assert cloud.census()["stack"] == []


def test_a_change_of_the_spec_changes_a_node_group(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, EKS)
    cloud.up()
    build = cloud.build(cloud.planned(tmp_path, EKS.replace("max: 2", "max: 4")))
    [change] = build.changes(build.existing()).changes
    assert (change.file, change.path, change.effect) == ("stacks/nodes-train.parameters.json", "MaxSize", "live")
    cloud.world.faults.failures.append(Failure("cut-nodes-train", "Nodes", "update", "InsufficientCapacity"))
    with pytest.raises(BuildFailed, match=r"cut-nodes-train could not be changed: Nodes .*InsufficientCapacity"):
        cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 1-2 1 x1"
    cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 1-4 1 x1"


BLOCK = EKS.replace("capacity: {reservation:", "capacity: {block:")


def test_nodes_of_a_capacity_block_come_when_it_has_begun(cloud: Cloud, tmp_path: Path, way: str) -> None:
    block = cloud.world.reservations["cr-0a1b2c3d4e5f67890"]
    block |= {"State": "scheduled", "StartDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC)}
    plan = cloud.planned(tmp_path, BLOCK)
    cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 0-2 0 x1"
    [words] = cloud.build(plan).left_to_do
    assert "queue train has no nodes yet: capacity block cr-0a1b2c3d4e5f67890 begins at 2026-12-01 11:30 UTC" in words
    assert "`trainwright up`" in words
    block |= {"State": "active"}
    build = cloud.build(plan)
    prepared = Prepared(build, [], build.existing(), build.changes(build.existing()), build.steps())
    assert [step.title for step in prepared.steps if prepared.fate(step) in ("make", "change")] == [
        {
            "own": "stack cut-nodes-train: nodes of queue train",
            "eksctl": "nodes of queue train: 1 (eksctl scale nodegroup)",
        }[way]
    ]
    cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 0-2 1 x1"
    assert cloud.build(plan).left_to_do == ()
    if way == "eksctl":  # in the other way a new stack and a changed one have the same parameters
        before = cloud.calls()
        cloud.up()
        assert not [call for call in cloud.world.faults.calls[before:] if call["action"] == "scale"]
        cloud.down()
        cloud.up()
        assert cloud.census()["node group"][1] == "cut/train 0-2 1 x1", "a group that is made now starts with its nodes"


def test_nodes_of_a_self_managed_group_on_a_block_are_counted_by_their_tags(cloud: Cloud, tmp_path: Path) -> None:
    """EKS shows no group that it does not manage."""
    sizes = GroupSizes(
        cloud.account,
        cloud.planned(tmp_path, BLOCK.replace("count:", "provisioner: self-managed, efa: false, count:")).spec,
    )
    assert sizes.to_scale() == {"train": 1}
    cloud.world.client("ec2", REGION).run_instances(
        ImageId=IMAGE,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags_of("train")}],
    )
    assert sizes.to_scale() == {}


def test_a_larger_group_keeps_the_nodes_that_somebody_started(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BLOCK)
    cloud.up()
    cluster(cloud).groups["train"].nodes.append("i-0aaaaaaaaaaaaaaaa")  # scaled by hand
    cloud.planned(tmp_path, BLOCK.replace("max: 2", "max: 4"))
    cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 0-4 2 x1"


def test_a_cluster_that_gets_karpenter_later_lets_its_nodes_join(cloud: Cloud, tmp_path: Path) -> None:
    """eksctl refuses to make what is there already, so each right is asked for by itself."""
    cloud.programs = StandInPrograms(cloud.world, REGION, WAYS["eksctl"])
    cloud.planned(tmp_path, EKS)
    cloud.up()
    assert cluster(cloud).identities == [("train", "trainwright")]
    more = EKS.replace("queues:\n", "queues:\n  - {name: more, instance: g5.8xlarge, count: {min: 0, max: 2}}\n")
    cloud.planned(tmp_path, more)
    for _ in range(2):
        cloud.up()
    assert cluster(cloud).identities == [("train", "trainwright"), ("kube-system", "karpenter")]
    [entry] = cluster(cloud).access
    assert "role/" in entry
    cloud.world.client("ec2", REGION).run_instances(
        ImageId=IMAGE, InstanceType="g5.8xlarge", MinCount=2, MaxCount=2,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags_of("more")}],
    )  # fmt: skip
    status = EksStatus(cloud.account, "cut").read()
    assert status is not None
    assert [(queue.name, queue.gpus, queue.states) for queue in status.queues] == [
        ("system", 0, {"running": 2}), ("train", 8, {"running": 1}), ("more", 1, {"running": 2}),
    ], "those of Karpenter are seen, and paid for"  # fmt: skip
    add(cloud, "NodeClaim", "more-1")
    cloud.programs.deleted.clear()
    cloud.down()
    assert cloud.programs.deleted[1:] == ["NodePool more", "NodeClaim more-1", "EC2NodeClass more"]


def test_a_failed_node_group_is_named_and_made_on_the_next_run(cloud: Cloud, way: str) -> None:
    logical = "Nodes" if way == "own" else "ManagedNodeGroup"
    stack = "cut-nodes-train" if way == "own" else "eksctl-cut-nodegroup-train"
    cloud.world.faults.failures.append(Failure(stack, logical, "create", "UnfulfillableCapacity"))
    with pytest.raises(BuildFailed, match="UnfulfillableCapacity"):
        cloud.up()
    cloud.up()
    assert cloud.census()["node group"][1] == "cut/train 1-2 1 x1"


def test_an_ended_run_of_eks_goes_on(cloud: Cloud, way: str) -> None:
    assert cut(cloud, 2, seed=5, crossed=False, kept=1) >= 3


@pytest.mark.slow
def test_an_ended_run_of_eksctl_goes_on_or_is_taken_back(cloud: Cloud, tmp_path: Path) -> None:
    """A sample of the next one, which CI has no time for."""
    cloud.programs = StandInPrograms(cloud.world, REGION, WAYS["eksctl"])
    cloud.planned(tmp_path, EKS)
    assert cut(cloud, 4, seed=7, kept=1) >= 14


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)  # 50 s of CPU each, of which a busy machine gives little
def test_an_ended_run_of_eks_goes_on_from_anywhere(cloud: Cloud, way: str) -> None:
    assert cut(cloud, 14, seed=6, kept=1) >= 50  # a later run makes a few calls less
