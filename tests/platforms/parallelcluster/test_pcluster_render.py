"""What the ParallelCluster renderer writes for each thing a spec can say, and what it refuses, at which line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.errors import UserError
from trainwright.platforms.annotated import Why, plain, to_yaml
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.platforms.setting import lustre_gib
from trainwright.spec.load import load

BASE = """\
name: demo
platform: parallelcluster
region: us-east-2
queues:
  - {name: train, instance: p5.48xlarge, count: 4}
"""


@pytest.fixture
def plan_of(tmp_path: Path) -> Any:
    def make(text: str, *overrides: str) -> ClusterPlan:
        path = tmp_path / "spec.yaml"
        path.write_text(text)
        return make_plan(load(path, overrides))

    return make


def cluster(plan: ClusterPlan) -> Any:
    return yaml.safe_load(plan.files["cluster.yaml"])


def queue(plan: ClusterPlan) -> Any:
    return cluster(plan)["Scheduling"]["SlurmQueues"][0]


@pytest.mark.parametrize(
    ("capacity", "kind", "target"),
    [
        ("on-demand", "ONDEMAND", None),
        ("spot", "SPOT", None),
        ("{reservation: cr-0a1b2c3d4e5f67890}", "ONDEMAND", {"CapacityReservationId": "cr-0a1b2c3d4e5f67890"}),
        ("{block: cr-0a1b2c3d4e5f67890}", "CAPACITY_BLOCK", {"CapacityReservationId": "cr-0a1b2c3d4e5f67890"}),
        (
            "{group: 'arn:aws:resource-groups:us-east-2:123456789012:group/g'}",
            "ONDEMAND",
            {"CapacityReservationResourceGroupArn": "arn:aws:resource-groups:us-east-2:123456789012:group/g"},
        ),
    ],
)
def test_capacity(plan_of: Any, capacity: str, kind: str, target: object) -> None:
    rendered = queue(plan_of(BASE, f"queues.train.capacity={capacity}"))
    assert rendered["CapacityType"] == kind
    assert rendered["ComputeResources"][0].get("CapacityReservationTarget") == target


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("queues.train.capacity=on-demand", {"Enabled": True}),
        ("queues.train.capacity={reservation: cr-0a1b2c3d4e5f67890}", {"Enabled": False}),
        ("queues.train.efa=false", {"Enabled": False}),
        ("queues.train.placement=my-group", {"Enabled": True, "Name": "my-group"}),
        ("queues.train.placement=false", {"Enabled": False}),
    ],
)
def test_placement_follows_the_rule_of_thumb(plan_of: Any, override: str, expected: object) -> None:
    assert queue(plan_of(BASE, override))["Networking"]["PlacementGroup"] == expected


@pytest.mark.parametrize(
    ("instance", "layout"),
    [
        ("p5.48xlarge", {"Sockets": 2, "CoresPerSocket": 48, "ThreadsPerCore": 2}),
        ("p4d.24xlarge", {"Sockets": 2, "CoresPerSocket": 24, "ThreadsPerCore": 2}),
        ("g5.8xlarge", None),
        ("c5.4xlarge", None),
    ],
)
def test_sockets_and_cores_are_set_where_there_are_several(plan_of: Any, instance: str, layout: object) -> None:
    rendered = queue(plan_of(BASE, f"queues.train.instance={instance}"))
    assert rendered["ComputeResources"][0].get("CustomSlurmSettings") == layout


def test_nvme_is_mounted_only_where_there_is_some(plan_of: Any) -> None:
    text = BASE + "  - {name: cpu, instance: c5.4xlarge, count: 1}\nstorage: [{mount: /scratch, nvme: raid0}]\n"
    queues = cluster(plan_of(text))["Scheduling"]["SlurmQueues"]
    disks = [q["ComputeSettings"]["LocalStorage"].get("EphemeralVolume") for q in queues]
    assert disks == [{"MountDir": "/scratch"}, None]


def test_existing_network_and_storage_make_no_stacks(plan_of: Any) -> None:
    text = BASE + (
        "network: {vpc: vpc-0a1b2c3d4e5f67890, public_subnet: subnet-0a1b2c3d4e5f67890,"
        " private_subnet: subnet-0a1b2c3d4e5f67891, security_group: sg-0a1b2c3d4e5f67890}\n"
        "storage:\n  - {mount: /fsx, lustre: {id: fs-0a1b2c3d4e5f67890}}\n"
        "  - {mount: /home, openzfs: {id: fsvol-0a1b2c3d4e5f67890}}\n"
        "  - {mount: /efs, efs: {id: fs-0a1b2c3d4e5f67892}}\n"
    )
    plan = plan_of(text)
    assert [stack.key for stack in plan.stacks] == ["bucket"], "for the files that nodes fetch"
    plan = plan_of(text + "software: {runtime: none}\nslurm: {JobCompType: jobcomp/none}\n")
    assert plan.stacks == ()
    assert "stack-output:" not in plan.files["cluster.yaml"].replace("start with stack-output:", "")
    kinds = {s["MountDir"]: s["StorageType"] for s in cluster(plan)["SharedStorage"]}
    assert kinds == {"/fsx": "FsxLustre", "/home": "FsxOpenZfs", "/efs": "Efs"}


def test_what_the_cluster_creates_is_retained(plan_of: Any) -> None:
    text = BASE + (
        "storage:\n  - {mount: /fsx, lustre: {managed: true}, bucket: 's3://data/x'}\n"
        "  - {mount: /apps, ebs: {capacity: 200GiB}}\n  - {mount: /efs, efs: {}}\n"
    )
    for item in cluster(plan_of(text))["SharedStorage"]:
        settings = next(value for key, value in item.items() if key.endswith("Settings"))
        assert settings["DeletionPolicy"] == "Retain"


def test_without_a_key_no_port_is_open(plan_of: Any) -> None:
    assert cluster(plan_of(BASE))["HeadNode"]["Ssh"] == {"AllowedIps": "127.0.0.1/32"}


def test_jobs_may_reach_the_buckets_they_name_and_no_others(plan_of: Any) -> None:
    text = BASE + (
        "jobs:\n  - {name: a, script: a.py, data: 's3://tokens/c4', checkpoint: {to: 's3://saves/a'}}\n"
        "  - {name: b, script: b.py, data: /fsx/data}\n"
    )
    access = queue(plan_of(text))["Iam"]["S3Access"]
    assert access == [
        {"BucketName": "tokens", "EnableWriteAccess": False},
        {"BucketName": "saves", "EnableWriteAccess": True},
    ]


def test_a_database_brings_a_second_zone_and_its_client_group(plan_of: Any) -> None:
    plan = plan_of(BASE + "accounting: true\n")
    network = next(stack for stack in plan.stacks if stack.key == "network")
    assert dict(network.parameters) == {"ZoneStyle": "id", "Zone1": "use2-az1", "Zone2": "use2-az2"}
    assert (
        "stack-output:accounting.ClientSecurityGroup"
        in (cluster(plan)["HeadNode"]["Networking"]["AdditionalSecurityGroups"])
    )
    assert queue(plan)["Networking"]["SubnetIds"] == ["stack-output:network.PrivateSubnet"]


def test_queues_without_efa_spread_over_the_zones_asked_for(plan_of: Any) -> None:
    text = BASE + "  - {name: cpu, instance: c5.4xlarge, count: 1}\nnetwork: {zones: 3}\n"
    gpu, cpu = cluster(plan_of(text))["Scheduling"]["SlurmQueues"]
    assert gpu["Networking"]["SubnetIds"] == ["stack-output:network.PrivateSubnet"]
    assert len(cpu["Networking"]["SubnetIds"]) == 3
    assert cpu["ComputeResources"][0]["Instances"] == [{"InstanceType": "c5.4xlarge"}]
    with pytest.raises(UserError, match="several zones cannot own a Lustre"):
        plan_of(text + "storage: [{mount: /fsx, lustre: {managed: true}}]\n")


def test_a_script_has_its_hash_in_its_address(plan_of: Any) -> None:
    plain_plan = plan_of(BASE + "software: {containers: enroot}\n")
    scratch_plan = plan_of(BASE + "software: {containers: enroot}\nstorage: [{mount: /scratch, nvme: raid0}]\n")
    first, second = plain_plan.scripts["scripts/enroot.sh"], scratch_plan.scripts["scripts/enroot.sh"]
    assert first != second
    assert first in plain_plan.files["cluster.yaml"]


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("queues.train.instance=p3dn.24xlarge", "no driver"),
        ("queues.train.instance=p5.99xlarge", "no instance type"),
        ("queues.train={name: train, instance: c5.large, count: 1, efa: true}", "c5.large has no EFA"),
        (
            "queues.train={name: t, instance: p5.48xlarge, count: {min: 1, max: 4}, capacity: {block: cr-1}}",
            "a Capacity Block needs equal counts",
        ),
        ("queues.train.gpus=8", "cannot honour `gpus`: it belongs to platform local"),
        ("software={os: alinux2}", "has no 'alinux2' for `os`"),
        ("software={os: rocky9}", "no stock image"),
        ("software={image: my-image}", "is not an image"),
        ("software={os: rhel9, containers: docker}", "installs no docker on rhel9"),
        ("storage=[{mount: /fsx, lustre: {capacity: 5TiB}}]", "5000 GiB is not a size"),
        ("storage=[{mount: /fsx, lustre: {throughput: 200}}]", "200 MB/s per TiB is not offered"),
        ("storage=[{mount: /a, lustre: {managed: true}}, {mount: /b, lustre: {managed: true}}]", "one lustre"),
        ("storage=[{mount: /fsx, lustre: {id: fs-1}, bucket: 's3://b'}]", "existing file system"),
        ("storage=[{mount: /home, openzfs: {throughput: 7}}]", "does not offer 7 MB/s"),
        ("storage=[{mount: /x, folder: ./x}]", "cannot honour `folder`"),
        ("head={instance: m7g.2xlarge}", "p5.48xlarge is x86_64, and the head node"),
        (
            "queues.train={name: t, instance: g5.8xlarge, count: 1, capacity: {block: cr-1}}",
            "not available in Capacity Blocks",
        ),
        ("queues.train={name: t, instance: t3.large, count: 1, placement: true}", "cluster placement group"),
        ("zone=usw2-az1", "zone usw2-az1 is in us-west-2"),
        ("storage=[{mount: /a/b, lustre: {}}, {mount: /a-b, lustre: {}}]", "would share the stack lustre-a-b"),
        ("network={vpc: vpc-1}", "but not public_subnet and private_subnet"),
        ("accounting={uri: 'db:3306'}", "has no user and no secret"),
    ],
)
def test_what_cannot_be_done_is_refused(plan_of: Any, override: str, what: str) -> None:
    with pytest.raises(UserError, match=what.replace("(", r"\(")) as caught:
        plan_of(BASE, override)
    assert "spec.yaml:" in caught.value.where or "--set" in caught.value.where


def test_the_head_node_follows_the_queues_architecture(plan_of: Any) -> None:
    assert cluster(plan_of(BASE, "queues.train.instance=g5g.4xlarge"))["HeadNode"]["InstanceType"] == "m7g.2xlarge"


def test_policies_are_those_of_the_regions_partition(plan_of: Any) -> None:
    policies = cluster(plan_of(BASE, "region=us-gov-west-1"))["HeadNode"]["Iam"]["AdditionalIamPolicies"]
    assert policies == [{"Policy": "arn:aws-us-gov:iam::aws:policy/AmazonSSMManagedInstanceCore"}]


def test_a_refusal_points_at_the_line(plan_of: Any) -> None:
    text = BASE.replace("count: 4}", "count: {min: 1, max: 4}, capacity: {block: cr-0a1b2c3d4e5f67890}}")
    with pytest.raises(UserError) as caught:
        plan_of(text)
    assert caught.value.where.endswith("spec.yaml:5:63")
    assert caught.value.status == 1


def test_a_second_zone_is_chosen_by_id_and_must_be_named_beside_a_name(plan_of: Any) -> None:
    """Zone names mean other zones in other accounts, so none can be chosen beside one."""
    with pytest.raises(UserError, match="needs 2 zones and the spec names 1"):
        plan_of(BASE + "zone: us-east-2c\naccounting: true\n")
    zones = dict(plan_of(BASE + "zone: use2-az3\naccounting: true\n").stacks[0].parameters)
    assert zones == {"ZoneStyle": "id", "Zone1": "use2-az3", "Zone2": "use2-az1"}
    plan = plan_of(BASE + "zone: use2-az3\naccounting: true\nnetwork: {more_zones: [use2-az1]}\n")
    assert dict(plan.stacks[0].parameters) == {"ZoneStyle": "id", "Zone1": "use2-az3", "Zone2": "use2-az1"}


def test_platforms_that_are_not_planned_say_so(plan_of: Any) -> None:
    with pytest.raises(UserError, match="platform slurm yet") as caught:
        plan_of("name: c\nplatform: slurm\nqueues: [{name: q}]\n")
    assert "parallelcluster" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.2TiB", 1200), ("4.8TiB", 4800), ("4800GiB", 4800), ("38.4TiB", 38400), ("1200GiB", 1200), ("5TiB", 5000)],
)
def test_lustre_sizes_are_what_fsx_calls_them(text: str, expected: int) -> None:
    from trainwright.spec.units import parse_bytes

    assert lustre_gib(parse_bytes(text)) == expected


def test_annotated_yaml_is_the_data_and_the_reasons() -> None:
    data = {
        "a": Why({"b": [1, "yes", "1.0", "x: y", None]}, "because"),
        "list": [Why({"k": Why(1, "inner"), "m": {}}, "outer"), []],
        "long": Why("v", "word " * 40),
    }
    text = to_yaml(data, "top")
    assert yaml.safe_load(text) == plain(data)
    assert text.startswith("# top\n\n# Because\na:\n")
    assert "  # Outer\n  # Inner\n  - k: 1\n" in text
    assert all(len(line) <= 120 for line in text.splitlines())
