"""The code of a script on AWS Batch: Batch by moto, S3 by a real server that checks signatures, and the command of a
container run for real with Python's standard library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from click.testing import CliRunner
from moto import mock_aws
from test_batch_runs import SPEC

from trainwright.aws.batch import BatchApi
from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.train.data.s3 import Bucket

LARGEST = 24 * 2**10  # bytes of a job definition


@pytest.fixture
def registered(
    s3: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[dict[str, Any]]]:
    """A spec with a place for code, and the job definitions that Batch is given."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)
    (tmp_path / "mine/pkg").mkdir(parents=True)
    (tmp_path / "mine/train.py").write_text("from pkg import WORDS; print('trained with', WORDS)\n")
    (tmp_path / "mine/pkg/__init__.py").write_text("WORDS = 'its package'\n")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "batch": {**SPEC["batch"], "code": f"{s3}/code"}}))  # type: ignore[dict-item]
    definitions: list[dict[str, Any]] = []
    register = BatchApi.register

    def recorded(api: BatchApi, definition: dict[str, Any]) -> str:
        definitions.append(definition)
        return register(api, definition)

    monkeypatch.setattr(BatchApi, "register", recorded)
    core = {"mock_credentials": False, "passthrough": {"services": ["s3"]}}
    with mock_aws(config={"batch": {"use_docker": False}, "core": core}):
        batch, region = boto3.client("batch", "us-east-1"), "us-east-1"
        role = boto3.client("iam", region).create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        made = batch.create_compute_environment(
            computeEnvironmentName="environment", type="UNMANAGED", state="ENABLED", serviceRole=role
        )
        order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
        batch.create_job_queue(jobQueueName="llama-train", state="ENABLED", priority=1, computeEnvironmentOrder=order)
        yield definitions


def submit(*words: str) -> str:
    done = CliRunner().invoke(
        cli, ["submit", "spec.yaml", "--script", "mine/train.py", "--container", "image:1", *words],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return str(done.stdout).strip()


def run_container(
    definition: dict[str, Any], folder: Path, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """The command of the first node, with folders of this machine and a torchrun that starts one rank."""
    [group] = definition["nodeProperties"]["nodeRangeProperties"]
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin/torchrun").write_text('#!/bin/sh\nfor last; do :; done\nexec python3 "$last"\n')
    (folder / "bin/torchrun").chmod(0o755)
    (folder / "bin/python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (folder / "bin/python3").chmod(0o755)
    shell, flag, text = group["container"]["command"]
    text = text.replace("/trainwright/code", f"{folder}/code").replace("/fsx/", f"{folder}/fsx/")
    env = {line["name"]: line["value"] for line in group["container"]["environment"]}
    env |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    env |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": "", "AWS_BATCH_JOB_NODE_INDEX": "0"}
    return subprocess.run([shell, flag, text], env=env, capture_output=True, text=True)


def older_pythons() -> list[str]:
    """Images are older than this machine: 3.10 is what many have."""
    there = [name for name in ("python3.10",) if shutil.which(name)]
    return [name for name in there if subprocess.run([name, "--version"], capture_output=True).returncode == 0]


def test_a_script_reaches_the_containers(registered: list[dict[str, Any]], s3: str, tmp_path: Path) -> None:
    name = submit("--nodes", "2")
    assert list(Bucket(f"{s3}/code").names()) == [f"{name}.tar.gz"]
    [definition] = registered
    assert len(json.dumps(definition)) < LARGEST * 2 // 3
    assert "X-Amz" not in json.dumps(definition), "the role of the job signs"
    done = run_container(definition, tmp_path / "node")
    assert done.stdout == "trained with its package\n", done.stderr
    for python in older_pythons():
        done = run_container(definition, tmp_path / python, python)
        assert done.stdout == "trained with its package\n", done.stderr
    # A second attempt, when the bucket was emptied since.
    Bucket(f"{s3}/code").delete(f"{name}.tar.gz")
    assert run_container(definition, tmp_path / "node").stdout == "trained with its package\n"


def test_what_cannot_be_fetched_or_was_replaced_is_not_run(
    registered: list[dict[str, Any]], s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submit()
    Bucket(f"{s3}/code").write(f"{name}.tar.gz", b"replaced by somebody")
    done = run_container(registered[0], tmp_path / "node")
    assert (done.returncode, done.stdout) == (1, "")
    assert "checksum differs" in done.stderr
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    done = run_container(registered[0], tmp_path / "node")
    assert (done.returncode, done.stdout) == (1, "")
    assert "S3 answered 403" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_place_for_it_a_script_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.raises(UserError, match="cannot be sent along") as refused:
        submit("--dry-run")
    assert "batch: {code: s3://bucket/prefix}" in refused.value.fix
