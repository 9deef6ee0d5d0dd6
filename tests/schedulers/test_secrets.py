"""Secrets of a job: taken where the user keeps them, handed over, and in no file of the run, whatever the scheduler."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from slurm_bench import Bench, report

from counting_jobs import order
from resolving import resolution
from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.platforms.local.daemons import wait_for
from trainwright.runs import store, submission
from trainwright.runs.store import Run
from trainwright.schedulers.process import ProcessScheduler

VALUE = "a 'value' with $(touch PWNED) \"quotes\"\nand a second line"
SHOWN = 'printf "%s" "$TOKEN" | sha256sum; printf "%s" "$KEY" | sha256sum'
ENV = {"TOKEN": {"secret": {"env": "MY_TOKEN"}}}


def holds(folder: Path, value: str) -> list[Path]:
    """The files below a folder in which a value stands, as it is or as JSON."""
    forms = {value.encode(), json.dumps(value)[1:-1].encode(), value.split("\n")[0].encode()}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def private(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("spec.yaml", "environment", "run.json", "resolved.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    [script] = [path for path in folder.glob("job.*") if path.suffix in (".sbatch", ".sh", ".yaml")]
    assert stat.S_IMODE(script.stat().st_mode) == 0o700


def job(kept: Path) -> dict[str, Any]:
    env = {**ENV, "KEY": {"secret": {"file": str(kept)}}}
    return {"command": ["bash", "-c", SHOWN], "launcher": "plain", "nodes": 1, "processes": 1, "env": env}


def digests(run: Run) -> list[str]:
    log = next(path for path in run.folder.glob("logs/*.log") if path.read_text())
    return [line.split()[0] for line in log.read_text().splitlines()]


def expected(*values: str) -> list[str]:
    return [hashlib.sha256(value.encode()).hexdigest() for value in values]


@pytest.mark.slurm
def test_a_job_on_slurm_has_its_secrets_and_its_folder_has_not(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "it's kept"
    kept.write_text("from a file\n")
    monkeypatch.setenv("MY_TOKEN", VALUE)
    run = bench.submit_job(**job(kept))
    assert bench.end(run).state == "completed", report(run)
    assert digests(run) == expected(VALUE, "from a file")
    assert holds(run.folder, VALUE) == holds(run.folder, "from a file") == []
    assert "TOKEN=(secret)" in (run.folder / "environment").read_text()
    assert not (run.folder / "PWNED").exists()
    private(run.folder)


def test_a_job_of_this_machine_has_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_TOKEN", VALUE)
    kept = tmp_path / "key"
    kept.write_text("from a file")
    spec = {"name": "here", "platform": "local", "queues": [{"name": "here", "nodes": 1, "cpus": 2}]}
    scheduler = ProcessScheduler()
    ordered = order(spec, job(kept), scheduler)
    run = submission.submit(ordered, submission.plan(ordered))
    wait_for(lambda: scheduler.state(run.identity).over, "the job ends", run.folder / "job.log", 60)
    assert digests(run) == expected(VALUE, "from a file"), report(run)
    assert holds(run.folder, VALUE) == []
    private(run.folder)


def test_a_secret_that_is_not_there_is_reported_before_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MY_TOKEN", raising=False)
    kept = tmp_path / "key"
    spec = {"name": "here", "platform": "local", "queues": [{"name": "here", "nodes": 1, "cpus": 2}]}
    ordered = order(spec, job(kept), ProcessScheduler())
    with pytest.raises(UserError, match=r"secret file of KEY .* does not exist"):
        submission.submit(ordered, submission.plan(ordered))
    kept.write_text("x")
    with pytest.raises(UserError, match="MY_TOKEN is not set in this shell"):
        submission.submit(ordered, submission.plan(ordered))
    assert list(store.all_runs()) == []


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TOKEN": {"secret": {}}}, "one of env and file"),
        ({"TOKEN": {"secret": {"env": "A", "file": "/b"}}}, "one of env and file"),
        ({"TOKEN": {"secret": {"env": "A;touch x"}}}, "no name of an environment variable"),
        ({"TOKEN": {"secret": {"file": "token"}}}, "full path"),
        ({"TOKEN": {"secret": {"file": "/a\nb"}}}, "line break"),
        ({"TOKEN": {"secrets": {"env": "A"}}}, "'secret' is missing"),
        ({"TOKEN": 5}, "put it in quotes"),
    ],
)
def test_a_reference_names_one_place(env: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        resolution({"command": ["true"], "env": env})


def tell(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), catch_exceptions=False)


SPEC = {"name": "lab", "platform": "slurm", "queues": [{"name": "train", "nodes": 1, "cpus": 1}], "runs": "/home/runs"}


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ({"MY_SERVICE_TOKEN": "correct-horse-battery"}, []),
        ({"DB_PASSWORD": "hunter22"}, []),
        ({}, ["--set", "jobs.t.env={X: hf_" + "A1b2" * 9 + "}"]),
        ({}, ["t", "--", "--token", "hf_" + "A1b2" * 9]),
        ({}, ["--command", "--nodes", "1", "--", "bash", "-c", "HF_TOKEN=hf_" + "A1b2" * 9 + " python train.py"]),
        ({}, ["t", "--", "--wandb-api-key=A1b2C3d4"]),
        ({}, ["--command", "--nodes", "1", "--", "psql", "--password", "A1b2C3d4"]),
        ({}, ["t", "--", "--my_token", "A1b2" * 9]),
    ],
)
def test_a_value_that_looks_like_a_secret_is_a_finding_and_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], more: list[str]
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "jobs": [{"name": "t", "command": ["true"], "env": env}]}))
    result = CliRunner().invoke(cli, ["submit", str(path), "--dry-run", *more])
    assert isinstance(result.exception, UserError)
    assert "refer to it" in result.exception.fix
    said = f"{result.output} {result.exception}"
    assert not any(value in said for value in (*env.values(), "A1b2")), said


@pytest.mark.parametrize(
    "words",
    [["--eos-token", "<|endoftext|>"], ["--password", "$PASSWORD"], ["--token"], ["--hf-token=/run/secrets/hf"]],
)
def test_an_argument_that_is_no_secret_is_none(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "jobs": [{"name": "t", "command": ["true"]}]}))
    assert tell("submit", str(path), "--dry-run", "t", "--", *words).exit_code == 0


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "HF_TOKEN_PATH"])
def test_a_value_that_is_no_secret_is_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "jobs": [{"name": "t", "command": ["true"], "env": {name: "/a/folder"}}]}))
    assert tell("submit", str(path), "--dry-run").exit_code == 0


def test_batch_fetches_secrets_itself(tmp_path: Path) -> None:
    spec = {
        "name": "b", "platform": "batch", "region": "us-east-2", "runs": "/fsx/runs",
        "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 1}],
        "jobs": [{"name": "t", "command": ["true"], "container": "i:1", "env": ENV}],
    }  # fmt: skip
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    result = CliRunner().invoke(cli, ["submit", str(path), "--dry-run"])
    assert isinstance(result.exception, UserError)
    assert "secrets: {TOKEN: arn:" in result.exception.fix
