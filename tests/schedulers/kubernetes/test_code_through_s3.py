"""Code that is too large for the cluster goes through S3: a real S3 server, the real clients, the pod's own command."""

from __future__ import annotations

import os
import random
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from stub_api import Api
from test_kubernetes_runs import JOBS, SPEC

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.runs import store
from trainwright.train.data.s3 import Bucket

SECRETS = "/api/v1/namespaces/training/secrets"


@pytest.fixture
def place(s3: str) -> str:
    return f"{s3}/code"


@pytest.fixture
def submit(tmp_path: Path, place: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Submits a script with two MB beside it that do not pack well; the run's name."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    kubernetes = {**SPEC["kubernetes"], "code": place}  # type: ignore[dict-item]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "kubernetes": kubernetes}))
    (tmp_path / "mine/pkg").mkdir(parents=True)
    (tmp_path / "mine/train.py").write_text("from pkg.table import WORDS; print('trained with', len(WORDS))\n")
    words = "".join(random.Random(1).choices(string.ascii_letters, k=2_000_000))
    (tmp_path / "mine/pkg/table.py").write_text(f"WORDS = {words!r}\n")

    def submitted(*more: str) -> str:
        words = ["submit", "spec.yaml", "--script", "mine/train.py", "--container", "image:1", *more]
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return str(done.stdout if more else done.stdout.strip())

    return submitted


def init(api: Api, name: str, pod: Path) -> subprocess.CompletedProcess[str]:
    """What the kubelet does: the init container's command with its secrets, in folders of this machine."""
    spec = api.objects[f"{JOBS}/{name}"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    before = spec["initContainers"][-1]  # after the one that opens the folders
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in before["volumeMounts"]} <= volumes
    assert any(mount["mountPath"] == "/fsx" for mount in before["volumeMounts"])
    values = api.objects[f"{SECRETS}/{name}"]["stringData"]
    env = {line["name"]: values[line["valueFrom"]["secretKeyRef"]["key"]] for line in before["env"]}
    *program, kept, code = before["command"]
    (pod / "code").mkdir(parents=True, exist_ok=True)
    command = [*program, str(pod / kept.lstrip("/")), str(pod / "code")]
    assert code == "/trainwright/code"
    return subprocess.run(command, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True)


def test_large_code_reaches_the_pods(submit: Any, api: Api, place: str, tmp_path: Path) -> None:
    name = submit()
    assert list(Bucket(place).names()) == [f"{name}.tar.gz"]
    assert api.objects[f"{SECRETS}/{name}"]["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    done = init(api, name, tmp_path / "pod")
    assert done.returncode == 0, done.stderr
    rank = subprocess.run(["python3", tmp_path / "pod/code/train.py"], capture_output=True, text=True)
    assert rank.stdout == "trained with 2000000\n", rank.stderr
    # A later start finds the archive beside the run, when the address is no longer valid.
    Bucket(place).delete(f"{name}.tar.gz")
    (tmp_path / "pod/code").rename(tmp_path / "pod/of-the-first-start")
    assert init(api, name, tmp_path / "pod").returncode == 0
    assert (tmp_path / "pod/code/pkg/table.py").is_file()


def test_the_address_is_a_secret_and_in_no_file(submit: Any, api: Api, tmp_path: Path) -> None:
    name = submit()
    address = api.objects[f"{SECRETS}/{name}"]["stringData"]["TRAINWRIGHT_CODE_URL"]
    assert "X-Amz-Expires=604800" in address
    signature = address.rpartition("X-Amz-Signature=")[2]
    assert len(signature) == 64
    folder = store.find(name).folder
    assert not [path for path in folder.rglob("*") if path.is_file() and signature in path.read_text(errors="replace")]
    spec = api.objects[f"{JOBS}/{name}"]
    assert signature not in str(spec)
    [container] = spec["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert "TRAINWRIGHT_CODE_URL" not in str(container), "the ranks need it no more"


def test_other_code_than_was_submitted_is_not_run(submit: Any, api: Api, place: str, tmp_path: Path) -> None:
    name = submit()
    Bucket(place).write(f"{name}.tar.gz", b"replaced by somebody")
    done = init(api, name, tmp_path / "pod")
    assert done.returncode == 1
    assert "checksum differs" in done.stderr
    assert list((tmp_path / "pod/code").iterdir()) == []
    Bucket(place).delete(f"{name}.tar.gz")
    done = init(api, name, tmp_path / "pod")
    assert "cannot fetch the code of this run: HTTP Error 404" in done.stderr
    assert "X-Amz" not in done.stderr


def test_a_refused_job_leaves_nothing_in_s3(
    submit: Any, api: Api, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "new_name", lambda job: "train-1")
    api.objects[f"{JOBS}/train-1"] = {"metadata": {"name": "train-1"}}
    with pytest.raises(UserError, match="refused: 409"):
        submit()
    assert list(Bucket(place).names()) == []
    assert list(api.objects) == [f"{JOBS}/train-1"]
    assert list((tmp_path / "home/runs").iterdir()) == []


@pytest.mark.parametrize("place", ["s3://", "https://bucket/x", "s3://Bucket/x", "s3://b$(id)/x", "s3://bucket/../x\n"])
def test_a_place_that_is_none_is_refused(place: str, tmp_path: Path) -> None:
    kubernetes = {**SPEC["kubernetes"], "code": place}  # type: ignore[dict-item]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "kubernetes": kubernetes}))
    with pytest.raises(UserError, match=r"no place in S3|control character"):
        CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), "--dry-run"], catch_exceptions=False)
