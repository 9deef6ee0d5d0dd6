"""The stand-in itself: it makes what it says, takes its time, and refuses what AWS refuses."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError
from standin.harness import REGION, SPEC, Cloud

from trainwright.platforms.apply.preflight import preflight
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild


def stack(cloud: Cloud, kind: str, **properties: object) -> tuple[str, str]:
    """A stack of one resource, after an hour: its status and why it failed."""
    template = {"Resources": {"One": {"Type": kind, "Properties": properties}}}
    client = cloud.account.client("cloudformation")
    id = client.create_stack(StackName="one", TemplateBody=json.dumps(template))["StackId"]
    cloud.world.clock.sleep(3600)
    events = client.describe_stack_events(StackName=id)["StackEvents"]
    reasons = [e["ResourceStatusReason"] for e in events if e["ResourceStatus"] == "CREATE_FAILED"]
    return client.describe_stacks(StackName=id)["Stacks"][0]["StackStatus"], " ".join(reasons)


def test_a_type_it_does_not_know_fails_the_stack(cloud: Cloud) -> None:
    assert stack(cloud, "AWS::Quantum::Computer") == (
        "ROLLBACK_COMPLETE",
        "Template error: the stand-in has no resource type AWS::Quantum::Computer",
    )


def test_limits_of_lustre(cloud: Cloud) -> None:
    subnet = cloud.account.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    state, reason = stack(
        cloud, "AWS::FSx::FileSystem", FileSystemType="LUSTRE", StorageCapacity=7, SubnetIds=[subnet],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250},
    )  # fmt: skip
    assert state == "ROLLBACK_COMPLETE"
    assert "Storage capacity 7" in reason
    assert cloud.census()["file system"] == []


def test_a_security_group_in_use_and_a_bucket_with_objects_stay(cloud: Cloud) -> None:
    ec2, s3 = cloud.account.client("ec2"), cloud.account.client("s3")
    subnet = ec2.describe_subnets()["Subnets"][0]
    group = ec2.create_security_group(GroupName="g", Description="g", VpcId=subnet["VpcId"])["GroupId"]
    ec2.create_network_interface(SubnetId=subnet["SubnetId"], Groups=[group])
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    s3.put_object(Bucket="the-data", Key="x", Body=b"x")
    with pytest.raises(ClientError, match="BucketNotEmpty"):
        s3.delete_bucket(Bucket="the-data")


def test_file_systems_and_links_go_through_their_states(cloud: Cloud) -> None:
    fsx = cloud.account.client("fsx")
    subnet = cloud.account.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
    id = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], LustreConfiguration=lustre
    )["FileSystem"]["FileSystemId"]
    link = {"FileSystemId": id, "FileSystemPath": "/data", "DataRepositoryPath": "s3://the-data"}
    with pytest.raises(ClientError, match="CREATING"):
        fsx.create_data_repository_association(**link)
    cloud.world.clock.sleep(600)
    fsx.create_data_repository_association(**link)
    with pytest.raises(ClientError, match="linked already"):
        fsx.create_data_repository_association(**link)
    fsx.delete_file_system(FileSystemId=id)
    assert fsx.describe_file_systems(FileSystemIds=[id])["FileSystems"][0]["Lifecycle"] == "DELETING"
    cloud.world.clock.sleep(600)
    with pytest.raises(ClientError, match="FileSystemNotFound"):
        fsx.describe_file_systems(FileSystemIds=[id])
    assert cloud.census()["link"] == []


def test_several_reservations_become_one_group(cloud: Cloud, tmp_path) -> None:
    ids = ["cr-0a1b2c3d4e5f67890", "cr-0a1b2c3d4e5f67891"]
    cloud.world.reserve(ids[1], "p5.48xlarge", "use2-az3", 2, REGION)
    plan = cloud.planned(
        tmp_path, SPEC.replace("{reservation: cr-0a1b2c3d4e5f67890}", f"{{group: [{', '.join(ids)}]}}")
    )
    answers = [a.words for a in preflight(cloud.account, plan) if a.question == "reservation"]
    assert [words.split(":")[0] for words in answers] == ids
    cloud.up()
    assert [arn.rpartition("/")[2] for arn in cloud.world.group_members["cut-train"]] == ids
    build = ParallelClusterBuild(plan, cloud.account, None)  # type: ignore[arg-type]
    build.outputs |= {key: dict(stack.outputs) for key, stack in build.existing().items()}
    arn = "arn:aws:resource-groups:us-east-2:123456789012:group/cut-train"
    assert f"CapacityReservationResourceGroupArn: {arn}" in build.config()
    cloud.down()
    assert cloud.census()["stack"] == []
