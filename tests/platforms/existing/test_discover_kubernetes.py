"""A Kubernetes cluster becomes a spec from GET requests alone, through the official client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.spec.load import load


def node(name: str, kind: str, able: dict[str, str], ready: str = "True") -> dict[str, Any]:
    labels = {"node.kubernetes.io/instance-type": kind} if kind else {}
    status = {"allocatable": able, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def items(*names: str) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": name}} for name in names]}


P5 = {"cpu": "191450m", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
ANSWERS: dict[str, Any] = {
    "/version": {"gitVersion": "v1.33.2"},
    "/api/v1/nodes": {
        "items": [
            node("a", "p5.48xlarge", P5),
            node("b", "p5.48xlarge", P5, ready="False"),
            node("c", "", {"cpu": "64", "nvidia.com/gpu": "4"}),
            node("d", "m5.xlarge", {"cpu": "3920m"}),
        ]
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": items(
        "jobsets.jobset.x-k8s.io", "mpijobs.kubeflow.org", "localqueues.kueue.x-k8s.io"
    ),
    "/apis/storage.k8s.io/v1/storageclasses": {
        "items": [{"metadata": {"name": "fsx-sc"}, "provisioner": "fsx.csi.aws.com"}]
    },
    "/api/v1/namespaces/training/persistentvolumeclaims": {
        "items": [
            {"metadata": {"name": "fsx"}, "spec": {"accessModes": ["ReadWriteMany"]}},
            {"metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"]}},
        ]
    },
    "/apis/kueue.x-k8s.io/v1beta1/namespaces/training/localqueues": items("team-a"),
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An API server on the loopback that answers GET from the table, and a kubeconfig for it."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            requests.append(f"GET {path}")
            found = ANSWERS.get(path)
            body = json.dumps(found if found is not None else {"kind": "Status", "code": 404}).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            requests.append(f"POST {self.path}")
            self.send_error(405)

        do_PUT = do_PATCH = do_DELETE = do_POST  # the names that http.server looks for

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "there",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    # The client reads the variable once, when it is imported.
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    yield requests
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_cluster_becomes_a_spec(asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "cluster.yaml"
    words = ["discover", "--context", "there", "--namespace", "training"]
    done = CliRunner().invoke(cli, [*words, "-o", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    spec = yaml.safe_load(out.read_text())
    assert spec["queues"] == [
        {"name": "p5-48xlarge", "instance": "p5.48xlarge", "count": 2},
        {"name": "nodes", "nodes": 1, "cpus": 64, "gpus": 4},
    ]
    assert spec["kubernetes"] == {
        "namespace": "training", "context": "there", "kind": "jobset", "claims": {"/fsx": "fsx"}, "kueue": "team-a"
    }  # fmt: skip
    assert load(str(out), ()).spec.platform == "kubernetes"
    assert all(request.startswith("GET ") for request in asked)
    done = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    data = json.loads(done.stdout)
    assert data["facts"]["kinds"] == ["jobset", "mpijob"]
    assert data["facts"]["kueue"] == ["team-a"]
    assert data["facts"]["kubernetes"] == "v1.33.2"
    assert data["facts"]["nodes"][0]["cards"] == {"vpc.amazonaws.com/efa": "32"}
    assert any("1 of 2 nodes p5.48xlarge are not ready" in note for note in data["notes"])


def test_a_job_renders_for_it(asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "cluster.yaml"
    words = ["discover", "--context", "current", "--namespace", "training", "-o", str(out)]
    assert CliRunner().invoke(cli, words, catch_exceptions=False).exit_code == 0
    spec = yaml.safe_load(out.read_text())
    spec["jobs"] = [{"name": "j", "nodes": 2, "command": ["python", "/a.py"], "container": "img:1"}]
    out.write_text(yaml.safe_dump(spec))
    done = CliRunner().invoke(cli, ["submit", str(out), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "kind: JobSet" in done.output
    assert "kueue.x-k8s.io/queue-name: team-a" in done.output


def test_the_gang_scheduler_of_the_operator_is_seen(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    operator = {"containers": [{"name": "o", "command": ["/manager"], "args": ["--gang-scheduler-name=volcano"]}]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    monkeypatch.setitem(ANSWERS, crds, items("pytorchjobs.kubeflow.org"))
    monkeypatch.setitem(
        ANSWERS, "/apis/apps/v1/deployments", {"items": [{"spec": {"template": {"spec": operator}}}]}
    )  # fmt: skip
    done = CliRunner().invoke(cli, ["discover", "--context", "there", "--json"], catch_exceptions=False)
    data = json.loads(done.stdout)
    assert (data["facts"]["gang"], data["spec"]["kubernetes"]["gang"]) == ("volcano", "volcano")
    assert all(request.startswith("GET ") for request in asked)
