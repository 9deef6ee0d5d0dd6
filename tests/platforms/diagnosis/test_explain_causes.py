"""Why a cluster failed, from logs as nodes, Slurm's plugins and CloudFormation write them: one sample for each known
cause, named after it. None may give another's verdict."""

from __future__ import annotations

import json
import os
import re
import tarfile
import time
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner
from moto import mock_aws

from trainwright.cli.main import cli
from trainwright.platforms.diagnosis.explain import causes, explain

LOGS = Path(__file__).parent / "logs"
SAMPLES = sorted(path.stem for path in LOGS.glob("*.log") if path.stem != "healthy")


def text(key: str) -> str:
    return (LOGS / f"{key}.log").read_text()


@pytest.mark.parametrize("key", SAMPLES)
def test_each_sample_gives_its_own_cause(key: str) -> None:
    explanation = explain({"log": text(key)})
    assert explanation is not None
    assert explanation.key == key, explanation.evidence
    assert not re.search(r"[{}]\w|\(\)|  ", re.sub(r"`[^`]*`", "x", explanation.paragraph)), explanation.paragraph
    assert explanation.evidence[0].text in text(key)


def test_every_cause_has_a_sample_and_a_healthy_cluster_has_none() -> None:
    assert {cause.key for cause in causes()} == set(SAMPLES)
    assert explain({"log": text("healthy")}) is None


@pytest.mark.parametrize(
    ("symptoms", "cause"),
    [
        (("wait-condition", "head-node-setup"), "script-failed"),
        (("protected-mode", "nodes-never-joined"), "insufficient-capacity"),
        (("protected-mode", "stack-failed"), "subnet-full"),
        (("wait-condition",), "no-way-out"),
        (("protected-mode",), "eventual-consistency"),
        (("stack-failed", "wait-condition"), "image-version"),
    ],
)
def test_a_symptom_is_not_taken_for_the_cause(symptoms: tuple[str, ...], cause: str) -> None:
    explanation = explain({key: text(key) for key in (*symptoms, cause)})
    assert explanation is not None
    assert explanation.key == cause
    assert explanation.followed


def test_what_the_log_names_is_in_the_answer() -> None:
    paragraphs = {key: explain({"log": text(key)}).paragraph for key in SAMPLES}  # type: ignore[union-attr]
    for key, words in {
        "insufficient-capacity": ("p5.48xlarge", "us-east-2c", "Still billed", "reserved capacity"),
        "image-version": ("3.13.1", "3.16.1"),
        "missing-permission": ("iam:CreateRole", "trainwright iam"),
        "script-failed": ("OnNodeConfigured script 2", "status 100"),
        "vcpu-quota": ("192",),
        "slurm-configuration": ("jobcomp",),
    }.items():
        for word in words:
            assert word in paragraphs[key], (key, word)


def test_secrets_of_a_log_are_not_shown() -> None:
    line = "AccessDenied: AKIAABCDEFGHIJKLMNOP aws_secret_access_key=abc/def password: hunter2"
    explanation = explain({"log": line})
    assert explanation is not None
    shown = explanation.evidence[0].text
    assert all(secret not in shown for secret in ("AKIAABCD", "abc/def", "hunter2"))


def test_files_folders_and_archives(tmp_path: Path) -> None:
    folder = tmp_path / "ip-10-0-0-5"
    folder.mkdir()
    for key, name in {
        "healthy": "cloud-init.log",
        "script-failed": "cfn-init.log",
        "wait-condition": "x.events",
    }.items():
        (folder / name).write_text(text(key))
    (folder / "slurmctld.bin").write_text("InsufficientInstanceCapacity")
    with tarfile.open(tmp_path / "demo-logs.tar.gz", "w:gz") as archive:
        archive.add(folder, "demo-logs")
    for target in (folder / "cfn-init.log", folder, tmp_path / "demo-logs.tar.gz"):
        done = CliRunner().invoke(cli, ["explain", str(target), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["key"] == "script-failed"
    done = CliRunner().invoke(cli, ["explain", str(folder / "cloud-init.log")])
    assert (done.exit_code, done.stdout) == (1, "")
    os.mkfifo(tmp_path / "pipe.log")
    assert CliRunner().invoke(cli, ["explain", str(tmp_path / "pipe.log")]).exit_code != 0
    assert CliRunner().invoke(cli, ["explain", str(tmp_path / "none.log")]).exit_code == 2


@mock_aws
def test_a_stack_that_somebody_else_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    template = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    boto3.client("cloudformation", "us-east-2").create_stack(StackName="theirs", TemplateBody=json.dumps(template))
    logs = boto3.client("logs", "us-east-2")
    group = "/aws/parallelcluster/theirs-202611020900"
    logs.create_log_group(logGroupName=group)
    for stream, key in {"ip-10-0-0-5.i-0.cfn-init": "script-failed", "ip-10-0-0-5.i-0.sssd": "disk-full"}.items():
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        events = [
            {"timestamp": int(time.time() * 1000) + n, "message": line} for n, line in enumerate(text(key).splitlines())
        ]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
    done = CliRunner().invoke(cli, ["explain", "theirs", "--region", "us-east-2", "--json"])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert (record["key"], record["evidence"][0]["source"]) == ("script-failed", "ip-10-0-0-5.i-0.cfn-init")
