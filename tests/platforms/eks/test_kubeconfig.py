"""The way to an EKS cluster without the AWS command line: the token that its API takes, and the kubeconfig."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from trainwright.aws.eks import EksCluster
from trainwright.aws.eks_token import token
from trainwright.platforms.eks import kubeconfig

CLUSTER = EksCluster("llama", "ACTIVE", "1.34", "https://abc.eks.amazonaws.com", "Y2E=")


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_token_is_a_signed_call_of_sts_for_this_cluster() -> None:
    made = token("llama", "us-east-2")
    prefix, _, body = made.partition(".")
    assert prefix == "k8s-aws-v1"
    assert "=" not in body, "EKS takes no padding"
    url = urlsplit(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())
    assert url.netloc == "sts.us-east-2.amazonaws.com", "EKS takes no other address than STS's"
    asked = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert (asked["Action"], asked["X-Amz-Expires"]) == ("GetCallerIdentity", "60")
    assert set(asked["X-Amz-SignedHeaders"].split(";")) == {"host", "x-k8s-aws-id"}
    assert asked["X-Amz-Security-Token"] == "session"


def test_the_kubeconfig_runs_our_token_and_holds_no_secret() -> None:
    path = kubeconfig.keep(CLUSTER, "us-east-2")
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "secret" not in text
    program = yaml.safe_load(text)["users"][0]["user"]["exec"]
    done = subprocess.run([program["command"], *program["args"]], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["kind"] == "ExecCredential"
    assert answer["status"]["token"].startswith("k8s-aws-v1.")


def test_the_users_kubeconfig_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "config"
    other = {"clusters": [{"name": "theirs", "cluster": {}}], "contexts": [], "current-context": "theirs", "more": 1}
    path.write_text(yaml.safe_dump(other))
    for _ in range(2):
        kubeconfig.merge(CLUSTER, "us-east-2", path)
    data = yaml.safe_load(path.read_text())
    assert [one["name"] for one in data["clusters"]] == ["theirs", "trainwright-llama"]
    assert (data["more"], data["current-context"]) == (1, "trainwright-llama")


def test_connect_runs_a_command_with_the_clusters_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainwright.aws.eks import EksApi
    from trainwright.cli.main import cli

    spec = tmp_path / "spec.yaml"
    queue = {"name": "train", "instance": "g5.8xlarge", "count": 2}
    spec.write_text(yaml.safe_dump({"name": "llama", "platform": "eks", "region": "us-east-2", "queues": [queue]}))
    started: list[tuple[str, str]] = []
    monkeypatch.setattr(EksApi, "cluster", lambda self, name: CLUSTER if name == "llama" else None)
    monkeypatch.setattr(
        "os.execvpe", lambda file, argv, environment: started.append((" ".join(argv), environment["KUBECONFIG"]))
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    CliRunner().invoke(cli, ["connect", str(spec), "--", "kubectl", "get", "nodes"], catch_exceptions=False)
    assert started == [("kubectl get nodes", str(tmp_path / "home" / "kube" / "trainwright-llama.yaml"))]
    CliRunner().invoke(cli, ["connect", str(spec), "--write-kubeconfig"], catch_exceptions=False)
    assert "trainwright-llama" in (tmp_path / ".kube" / "config").read_text()
    refused = CliRunner().invoke(cli, ["connect", str(spec), "--forward", "80"])
    assert (refused.exit_code, "has none" in refused.output) == (2, True)
