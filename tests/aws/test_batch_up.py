"""`up`, `status` and `down` of Batch on the stand-in: order, what AWS refuses, jobs that are still on a queue, and an
end at any call."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from standin.harness import BATCH, REGION, Cloud
from test_cut_points import cut

from trainwright.platforms.apply.remove import JobsOnCluster
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.apply.target import on_aws
from trainwright.platforms.batch.apply import BatchStatus
from trainwright.platforms.batch.default_group import ask_default_group, closed_default_group
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load

CONTAINER = {
    "image": "i", "command": ["true"],
    "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "512"}],
}  # fmt: skip


def submit(cloud: Cloud, queue: str = "cut-train") -> str:
    """As `submit` does: the definition carries the cluster's name. Beside it one of somebody else's."""
    batch = cloud.account.client("batch")
    for name, tags in (("others", {}), ("j", {"trainwright:cluster": "cut"})):
        made = batch.register_job_definition(
            jobDefinitionName=name, type="container", containerProperties=CONTAINER, tags=tags
        )
    return str(batch.submit_job(jobName="j", jobQueue=queue, jobDefinition=made["jobDefinitionArn"])["jobId"])


def assert_tagged(cloud: Cloud) -> None:
    """The tags of the spec are on the machine and its disk, which no stack makes; the queue's name stays its name."""
    ec2, wanted = cloud.account.client("ec2"), {"team": "research", "trainwright:cluster": "cut", "Name": "cut-train"}
    [machine] = ec2.describe_instances()["Reservations"][0]["Instances"]
    [disk] = [row["Ebs"]["VolumeId"] for row in machine["BlockDeviceMappings"]]
    [volume] = ec2.describe_volumes(VolumeIds=[disk])["Volumes"]
    for row in (machine, volume):
        assert wanted.items() <= {tag["Key"]: tag["Value"] for tag in row["Tags"]}.items()


def test_a_queue_comes_up_takes_jobs_and_goes(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH + "tags: {team: research, Name: ours}\n")
    steps = cloud.up()
    assert [step.key for step in steps][-2:] == ["queue-cut-train", "queue-cut-small"]
    whole = cloud.census()
    assert whole["job queue"] == ["cut-small ENABLED VALID x1", "cut-train ENABLED VALID x1"]
    assert whole["instance"] == ["p5.48xlarge running x1"]
    assert_tagged(cloud)
    status = BatchStatus(cloud.account, "cut").read()
    assert status is not None
    assert (status.state, status.problems, status.platform) == ("running", (), "batch")
    rows = [(queue.name, queue.least, queue.most, queue.gpus, queue.states) for queue in status.queues]
    assert sorted(rows, reverse=True) == [("cut-train", 1, 2, 8, {"running": 1}), ("cut-small", 0, 4, 1, {})]
    assert (status.reservations[0].total, status.usd_hour > 50) == (2, True)
    place = on_aws("cut", REGION)
    assert place is not None
    assert place.platform.name == "batch"
    cloud.world.hold_jobs = True
    job = submit(cloud)
    with pytest.raises(JobsOnCluster, match=rf"jobs wait or run on cluster cut \(1\): cut-train: j \({job}, RUNNING\)"):
        cloud.down()
    assert cloud.census() == whole, "jobs are listed and nothing is done"
    assert cloud.down(data=False, force=True) == ["lustre-fsx", "network"]
    batch = cloud.account.client("batch")
    assert batch.describe_jobs(jobs=[job])["jobs"][0]["status"] == "FAILED"
    assert [name.split()[0] for name in cloud.census()["stack"]] == ["cut-lustre-fsx", "cut-network"]
    left = batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"]
    assert [row["jobDefinitionName"] for row in left] == ["others"]
    cloud.down()
    assert (cloud.census()["stack"], cloud.census()["vpc"]) == ([], [])


def test_batch_of_the_stand_in_refuses_what_batch_refuses(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH)
    cloud.up()
    batch = cloud.account.client("batch")
    [environment, *_] = batch.describe_compute_environments()["computeEnvironments"]
    name = environment["computeEnvironmentName"]
    with pytest.raises(ClientError, match="state must be DISABLED"):
        batch.delete_job_queue(jobQueue="cut-train")
    batch.update_compute_environment(computeEnvironment=name, state="DISABLED")
    with pytest.raises(ClientError, match="being modified"):
        batch.delete_compute_environment(computeEnvironment=name)
    cloud.world.clock.sleep(60)
    with pytest.raises(ClientError, match="JobQueue relationship"):
        batch.delete_compute_environment(computeEnvironment=name)
    batch.update_job_queue(jobQueue="cut-train", state="DISABLED")
    cloud.world.clock.sleep(60)
    with pytest.raises(ClientError, match="not enabled"):
        submit(cloud)
    status = BatchStatus(cloud.account, "cut").read()
    assert status is not None
    assert len(status.problems) == 2
    cloud.up()
    assert cloud.census()["job queue"][1] == "cut-train ENABLED VALID x1", "up opens what was closed"


def test_a_queue_of_somebody_else_keeps_the_compute_environment(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH)
    cloud.up()
    batch = cloud.world.region(REGION).batch
    [environment] = batch.queues["cut-train"].fields["order"]
    batch.make(batch.queues, "job-queue", "theirs", {"order": [environment]})
    with pytest.raises(BuildFailed, match="found existing JobQueue relationship with theirs"):
        cloud.down()
    del batch.queues["theirs"]
    cloud.down()
    assert cloud.census()["stack"] == []


def test_an_invalid_compute_environment_is_named(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH)
    cloud.up()
    for part in cloud.world.region(REGION).batch.environments.values():
        part.status = "INVALID"
    with pytest.raises(BuildFailed, match="compute environment of cut-train is invalid"):
        cloud.up()


def test_a_closed_default_group_is_found_before_jobs_wait_for_each_other(cloud: Cloud, tmp_path: Path) -> None:
    """Containers of EFA queues get the default group of the VPC; policies of many accounts empty it."""
    cloud.planned(tmp_path, BATCH)
    cloud.up()
    ec2 = cloud.account.client("ec2")
    [subnet] = {row["SubnetId"] for row in ec2.describe_subnets()["Subnets"] if row["CidrBlock"] == "10.1.0.0/17"}
    assert closed_default_group(cloud.account, subnet) == ""
    [group] = [row for row in ec2.describe_security_groups()["SecurityGroups"]
               if row["GroupName"] == "default" and row["IpPermissions"]]  # fmt: skip
    ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    with pytest.raises(BuildFailed, match=f"jobs of cut-train would wait for each other: {group['GroupId']}"):
        cloud.up()
    existing = f"network: {{private_subnet: {subnet}, public_subnet: {subnet}, vpc: v-1, security_group: sg-1}}\n"
    (tmp_path / "existing.yaml").write_text(BATCH + existing)
    spec = load(tmp_path / "existing.yaml").spec
    [answer] = ask_default_group(cloud.account, resolve(spec)[0])
    assert answer.verdict == "fail"
    assert f"--source-group {group['GroupId']}" in answer.words


def test_an_ended_run_of_batch_goes_on(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH)
    assert cut(cloud, 3, seed=3, crossed=False, kept=1) >= 5


@pytest.mark.slow
def test_an_ended_run_of_batch_goes_on_from_anywhere(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, BATCH)
    assert cut(cloud, 14, seed=4, kept=1) >= 50
