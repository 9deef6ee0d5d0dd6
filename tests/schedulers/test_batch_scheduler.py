"""Jobs on AWS Batch, against moto: the definition registers, the job is submitted, listed and cancelled."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.schedulers.base import JobIdentity, Launch
from trainwright.schedulers.batch import BatchScheduler, command
from trainwright.schedulers.batch_code import write_command

LAUNCH = Launch(
    "pretrain",
    ("python", "-m", "trainwright.train", "--data", "/fsx/my data"),
    Path("/fsx/run"),
    nodes=2,
    processes=8,
    container="example.com/train:1",
    mounts=("/fsx", "/scratch:/data"),
    environment=(EnvVar("A", "1", "because"),),
    time=7200,
)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        batch = boto3.client("batch")
        role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        made = batch.create_compute_environment(
            computeEnvironmentName="environment", type="UNMANAGED", state="ENABLED", serviceRole=role
        )
        order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
        batch.create_job_queue(jobQueueName="train", state="ENABLED", priority=1, computeEnvironmentOrder=order)
        yield "train"


def scheduler(queue: str = "train", instance: str = "p5.48xlarge") -> BatchScheduler:
    return BatchScheduler(queue, instance)


def test_files_of_a_framework_are_written_by_the_command(tmp_path: Path) -> None:
    texts = {str(tmp_path / "code/it's a.py"): "print('ä')\n" * 9, str(tmp_path / "code/b/config.toml"): "x = 1\n"}
    first = write_command(replace(LAUNCH, files=tuple(texts.items())))
    subprocess.run(["bash", "-c", first], check=True)
    assert {path: Path(path).read_text(encoding="utf-8") for path in texts} == texts


def test_a_definition_that_batch_would_refuse_is_refused_here() -> None:
    """Batch answers with a validation error when the job is sent, long after a dry run said that all was well."""
    noise = "".join(hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(600))
    large = replace(LAUNCH, files=(("/trainwright/code/a.py", noise),))
    with pytest.raises(UserError, match=r"has \d\d,\d{3} bytes, and AWS Batch takes 24,576") as refused:
        scheduler().render(large)
    assert "batch: {code: s3://" in str(refused.value.fix)
    assert len(scheduler().render(replace(large, files=(("/trainwright/code/a.py", noise[:9000]),))).text)
    with pytest.raises(UserError, match="bytes") as refused:
        scheduler().render(replace(LAUNCH, code="/x", code_store="s3://b/c", environment=(EnvVar("A", noise, "b"),)))
    assert "shorten" in str(refused.value.fix)


def test_the_definition_asks_for_the_whole_machine() -> None:
    made = json.loads(scheduler().render(LAUNCH).text)
    [group] = made["nodeProperties"]["nodeRangeProperties"]
    container = group["container"]
    asked = {one["type"]: one["value"] for one in container["resourceRequirements"]}
    assert (asked["GPU"], asked["VCPU"]) == ("8", "192")
    assert int(asked["MEMORY"]) < 2 * 1024 * 1024
    assert len(container["linuxParameters"]["devices"]) == 32
    assert {limit["name"]: limit["hardLimit"] for limit in container["ulimits"]}["memlock"] == -1
    assert container["mountPoints"][1] == {"sourceVolume": "data-1", "containerPath": "/data"}
    assert made["timeout"] == {"attemptDurationSeconds": 7200}


def test_any_user_of_an_image_can_unpack_the_code() -> None:
    """A folder of the image would be root's; and a tmpfs that forbids execution loads no library."""
    sent = replace(LAUNCH, code="/trainwright/code", code_store="s3://b/c", folder=Path("/fsx/run"))
    [group] = json.loads(scheduler().render(sent).text)["nodeProperties"]["nodeRangeProperties"]
    [folder] = group["container"]["linuxParameters"]["tmpfs"]
    assert folder["containerPath"] == "/trainwright"
    assert {"rw", "exec"} <= set(folder["mountOptions"])


def test_a_definition_says_whose_it_is_and_what_is_not_tried_again() -> None:
    made = json.loads(replace(scheduler(), cluster="c").render(LAUNCH).text)
    assert made["tags"] == {"trainwright:cluster": "c"}
    assert {"onExitCode": "2", "action": "EXIT"} in made["retryStrategy"]["evaluateOnExit"]


def test_a_queue_without_efa_has_no_devices_of_it() -> None:
    """Docker starts no container with a device that the node does not have."""
    [group] = json.loads(replace(scheduler(), efa=False).render(LAUNCH).text)["nodeProperties"]["nodeRangeProperties"]
    assert group["container"]["linuxParameters"]["devices"] == []


def test_the_command_quotes_and_passes_shellcheck(tmp_path: Path) -> None:
    text = command(LAUNCH)
    assert "'/fsx/my data'" in text
    assert '--node-rank="$AWS_BATCH_JOB_NODE_INDEX"' in text
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n{text}\n")
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_job_lives_on_batch(queue: str) -> None:
    ours = scheduler(queue)
    job = ours.submit(LAUNCH, ours.render(LAUNCH))
    assert ours.state(job).name == "pretrain"
    assert ours.state(JobIdentity("00000000-0000-0000-0000-000000000000")).state == "unknown"
    ours.cancel(job)


def test_what_batch_cannot_do_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot honour array"):
        scheduler().render(Launch("x", ("a",), Path("/x"), container="i", array="0-3"))
    with pytest.raises(AssertionError, match="SPC004"):
        scheduler().render(Launch("x", ("a",), Path("/x")))
    with pytest.raises(UserError, match=r"p5\.49xlarge"):
        scheduler(instance="p5.49xlarge").render(LAUNCH)
