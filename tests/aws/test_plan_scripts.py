"""deploy.sh and undeploy.sh of a plan folder, executed by bash against the account of the stand-in: what they make is
what `up` makes, and what is left when they have removed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin.aws_program import aws_program, run_script
from standin.harness import BATCH, HYPERPOD, REGION, Cloud
from test_batch_up import submit

from trainwright.aws.cloudformation import StackApi
from trainwright.platforms.apply.target import on_aws
from trainwright.platforms.plan.tree import write

pytestmark = pytest.mark.slow


def test_batch_scripts_make_a_cluster_and_leave_nothing(cloud: Cloud, tmp_path: Path) -> None:
    plan, folder, bin = cloud.planned(tmp_path, BATCH + "tags: {team: research}\n"), tmp_path / "plan", tmp_path / "bin"
    write(plan, folder, {}, None)
    before = cloud.census()
    with aws_program(cloud.world, cloud.account, bin) as program:
        done = run_script(folder / "deploy.sh", bin)
        assert done.returncode == 0, done.stderr
        whole = cloud.census()
        assert whole["job queue"] == ["cut-small ENABLED VALID x1", "cut-train ENABLED VALID x1"]
        place = on_aws("cut", REGION)
        assert place is not None
        assert place.platform.name == "batch", "`status` and `down` know it by its tags"
        again = run_script(folder / "deploy.sh", bin)
        assert (again.returncode, cloud.census()) == (0, whole), again.stderr
        cloud.up()
        assert cloud.census() == whole, "and `up` has nothing to change"
        submit(cloud)
        refused = run_script(folder / "undeploy.sh", bin, "network")
        assert (refused.returncode, cloud.census()) == (2, whole), "only what holds data is named"
        done = run_script(folder / "undeploy.sh", bin)
        assert done.returncode == 0, done.stderr
        assert "kept: cut-lustre-fsx" in done.stderr
        assert [name.split()[0] for name in cloud.census()["stack"]] == ["cut-lustre-fsx", "cut-network"]
        active = cloud.account.client("batch").describe_job_definitions(status="ACTIVE")["jobDefinitions"]
        assert [row["jobDefinitionName"] for row in active] == ["others"], "and nobody else's"
        done = run_script(folder / "undeploy.sh", bin, "lustre-fsx")
        assert done.returncode == 0, done.stderr
    deleted = [call.split()[3] for call in program.calls if call.startswith("cloudformation delete-stack")]
    assert deleted == ["cut-batch-small", "cut-batch-train", "cut-lustre-fsx", "cut-network"]
    assert left(cloud) == before


def left(cloud: Cloud) -> dict[str, list[str]]:
    """What is there beside the flow logs, which outlive their network on purpose."""
    whole = cloud.census()
    return {**whole, "log group": [name for name in whole["log group"] if "FlowLogs" not in name]}


def test_hyperpod_scripts_make_a_cluster_and_leave_the_bucket(cloud: Cloud, tmp_path: Path) -> None:
    plan, folder, bin = (
        cloud.planned(tmp_path, HYPERPOD + "tags: {team: research}\n"),
        tmp_path / "plan",
        tmp_path / "bin",
    )
    write(plan, folder, {}, None)
    before = cloud.census()
    with aws_program(cloud.world, cloud.account, bin):
        done = run_script(folder / "deploy.sh", bin)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Running") == 3, "the head node and two that train"
        whole, there = cloud.census(), {stack.name: stack for stack in StackApi(cloud.account).of_cluster("cut")}
        assert all(stack.tags.get("team") == "research" for stack in there.values())
        cloud.up()
        assert {**cloud.census(), "key": whole["key"]} == whole, "`up` adds the key pair and changes nothing"
        done = run_script(folder / "undeploy.sh", bin, "lustre-fsx", "bucket")
        assert done.returncode == 0, done.stderr
    assert "left: s3://" in done.stderr
    after = left(cloud)
    assert len(after["bucket"]) == len(before["bucket"]) + 1
    assert {**after, "bucket": before["bucket"], "file": before["file"], "key": before["key"]} == before
