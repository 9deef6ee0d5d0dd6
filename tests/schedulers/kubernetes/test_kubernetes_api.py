"""Submitting, listing, reading and cancelling through the real Kubernetes client. Behind it stands a small server on
loopback that keeps objects as the API does (no Kubernetes control plane can be installed here from packages)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.errors import UserError
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.pod import Grounds
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler

LAUNCH = Launch("pretrain", ("python", "train.py"), Path("/fsx/run"), nodes=2, container="example.com/train:1")
JOBS = "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs"
PODS = "/api/v1/namespaces/training/pods"


class Api(ThreadingHTTPServer):
    """Objects by path."""

    objects: dict[str, dict[str, Any]]
    pods: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Api

    def _answer(self, body: Any, status: int = 200) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        item = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = f"{self.path.partition('?')[0]}/{item['metadata']['name']}"
        if path in self.server.objects:
            return self._answer({"reason": "AlreadyExists"}, 409)
        self.server.objects[path] = item
        return self._answer(item, 201)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == JOBS:
            return self._answer({"items": list(self.server.objects.values())})
        if path == PODS:
            return self._answer({"kind": "PodList", "apiVersion": "v1", "items": self.server.pods})
        if path.endswith("/log"):
            return self._answer("step 1\nstep 2\n")
        found = self.server.objects.get(path)
        return self._answer(found, 200) if found else self._answer({"reason": "NotFound"}, 404)

    def do_DELETE(self) -> None:
        path = self.path.partition("?")[0]
        found = self.server.objects.pop(path, None)
        return self._answer({"status": "Success"} if found else {"reason": "NotFound"}, 200 if found else 404)

    def log_message(self, *words: Any) -> None:
        return None


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    server = Api(("127.0.0.1", 0), Handler)
    server.objects, server.pods = {}, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def scheduler() -> KubernetesScheduler:
    return KubernetesScheduler(Grounds(namespace="training"))


def test_a_job_is_submitted_seen_and_cancelled(api: Api) -> None:
    ours = scheduler()
    assert ours.submit(LAUNCH, ours.render(LAUNCH)) == "pretrain"
    assert ours.state("pretrain").state == "pending"
    api.objects[f"{JOBS}/pretrain"]["status"] = {
        "startTime": "2026-11-15T00:00:00Z",
        "conditions": [
            {"type": "Running", "status": "False", "lastTransitionTime": "2026-11-15T00:00:01Z"},
            {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-15T00:00:02Z", "message": "pod 1 died"},
        ],
    }
    [status] = ours.jobs()
    assert (status.state, status.reason, status.over) == ("failed", "pod 1 died", True)
    ours.cancel("pretrain")
    assert api.objects == {}


def test_logs_carry_the_pods_name(api: Api) -> None:
    api.pods = [{"metadata": {"name": "pretrain-master-0"}, "spec": {"containers": []}}]
    assert list(scheduler().logs("pretrain")) == [("pretrain-master-0", "step 1"), ("pretrain-master-0", "step 2")]


def test_why_a_job_waits(api: Api) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    api.pods = [{"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"conditions": [condition]}}]
    assert "Insufficient nvidia.com/gpu" in scheduler().explain_pending("pretrain")


def test_refusals_say_what_to_do(api: Api) -> None:
    ours = scheduler()
    script = ours.render(LAUNCH)
    ours.submit(LAUNCH, script)
    with pytest.raises(UserError, match="409") as caught:
        ours.submit(LAUNCH, script)
    assert "another name" in caught.value.fix
    with pytest.raises(UserError, match="404"):
        ours.cancel("nobody")
