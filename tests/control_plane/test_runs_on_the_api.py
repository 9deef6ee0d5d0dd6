"""Runs from `submit` to their end through the public commands, against a real API server: a PyTorchJob that trains on
two nodes, is cancelled and resumed, and a JobSet whose first start fails. Pods are processes of this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ControlPlane
from definitions import apply
from local_pods import Node
from operators import Operators

from trainwright.runs import store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may build the server
JOB = {"name": "train", "recipe": "cpu-ddp", "nodes": 2, "container": "example.com/train:1", "steps": 400,
       "batch": {"tokens": 256}, "checkpoint": {"steps": 4}}  # fmt: skip


class Cluster:
    """What a test sees of the cluster: the commands of a user, and the API."""

    def __init__(self, plane: ControlPlane, folder: Path, node: Node, namespace: str) -> None:
        self.plane, self.folder, self.node, self.namespace = plane, folder, node, namespace
        self.spec = folder / "spec.yaml"
        self.environment = {**plane.environment(), "TRAINWRIGHT_HOME": str(folder / "home")}

    def write(self, *jobs: dict[str, Any], kind: str) -> Path:
        mount = str(self.folder / "fsx")
        spec = {
            "name": "here", "platform": "kubernetes", "queues": [{"name": "cpu", "nodes": 2, "cpus": 1}],
            "storage": [{"mount": mount, "folder": mount}],
            "kubernetes": {"namespace": self.namespace, "kind": kind, "claims": {mount: "fsx"}}, "jobs": list(jobs),
        }  # fmt: skip
        self.spec.write_text(yaml.safe_dump(spec))
        return self.spec

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trainwright", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, cwd=self.folder, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def run(self, *words: str | Path, code: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=200)
        assert process.returncode == code, f"{words}: {out}\n{err}"
        assert "InsecureRequestWarning" not in err
        return out.strip()

    def get(self, group: str, rest: str) -> tuple[int, Any]:
        return self.plane.request("GET", f"{group}/namespaces/{self.namespace}/{rest}")

    def states(self) -> dict[str, str]:
        return {row["id"]: row["state"] for row in json.loads(self.run("jobs", self.spec, "--json"))}

    def until(self, seen: Callable[[], Any], what: str, seconds: float = 120) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = seen()
            if value:
                return value
            time.sleep(0.2)
        raise AssertionError(f"never: {what}")


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    namespace = re.sub(r"[^a-z0-9]+", "-", tmp_path.name.lower()).strip("-")
    apply(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    (tmp_path / "fsx").mkdir()
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    node = Node(plane, tmp_path / "node")
    operators = Operators(plane, node, namespace)
    try:
        yield Cluster(plane, tmp_path, node, namespace)
    finally:
        operators.stop()
        node.stop()


def steps(cluster: Cluster, name: str) -> list[int]:
    path = cluster.folder / "fsx/trainwright/runs" / name / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


def test_a_pytorchjob_is_followed_cancelled_and_resumed(cluster: Cluster) -> None:
    spec = cluster.write(JOB, kind="pytorchjob")
    name = cluster.run("submit", spec)
    following = cluster.start("logs", "-f", name)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(following.stdout or ()), daemon=True)
    reader.start()
    try:
        cluster.until(lambda: max(steps(cluster, name), default=0) >= 6, "the sixth step")
        assert cluster.states() == {name: "running"}
        cluster.until(lambda: any(line.startswith("[rank-0]") for line in lines), "a line of rank 0")

        cluster.node.may_delete.clear()  # its pods take their time to end
        cluster.run("cancel", name)
        assert cluster.states() == {name: "completing"}
        cluster.node.may_delete.set()
        cluster.until(lambda: cluster.states() == {}, "the job is gone")
        assert following.wait(60) != 0, "a cancelled job has not succeeded"
    finally:
        following.kill()
        following.wait()
    objects = cluster.get("/api/v1", "pods")[1]["items"]
    assert objects == [], "the garbage collector took the pods"
    [row] = json.loads(cluster.run("runs", "--json"))
    assert (row["run"], row["state"]) == (name, "cancelled")

    done = max(steps(cluster, name))
    again = cluster.run("resume", name, "--follow", "--", "--steps", str(done + 3)).splitlines()
    assert any(line.startswith("[rank-0]") for line in again)
    resumed = store.find("last").name
    assert steps(cluster, resumed) == [*range(done + 1, done + 4)], "it goes on where the signal made it save"


def test_a_jobset_starts_again_and_ends(cluster: Cluster) -> None:
    (cluster.folder / "mine").mkdir()
    (cluster.folder / "mine/train.py").write_text(
        "import os, pathlib, sys, words\n"
        "mark = pathlib.Path(sys.argv[1]) / ('seen-' + os.environ['NODE_RANK'])\n"
        "first = not mark.exists()\n"
        "mark.touch()\n"
        "print(words.HELLO, os.environ['NODE_RANK'], os.environ['WANDB_API_KEY'][::-1], flush=True)\n"
        "sys.exit(9 if first and os.environ['NODE_RANK'] == '1' else 0)\n"
    )
    (cluster.folder / "mine/words.py").write_text("HELLO = 'sent along to'\n")
    job = {
        "name": "mine", "script": "mine/train.py", "args": [str(cluster.folder / "fsx")], "nodes": 2,
        "container": "example.com/train:1", "launcher": "plain", "env": {"WANDB_API_KEY": {"secret": {"env": "KEY"}}},
    }  # fmt: skip
    cluster.environment["KEY"] = "terces"
    spec = cluster.write(job, kind="jobset")
    out = cluster.run("submit", spec, "--follow")
    assert "sent along to 0 secret" in out
    assert "sent along to 1 secret" in cluster.run("logs", "last")
    [row] = json.loads(cluster.run("runs", "--json"))
    assert row["state"] == "completed"
    status, job_set = cluster.get("/apis/jobset.x-k8s.io/v1alpha2", f"jobsets/{row['run']}")
    assert (status, job_set["status"]["restarts"]) == (200, 1)
    # With the job go the secret and the code that were made for it.
    assert cluster.get("/api/v1", f"secrets/{row['run']}")[0] == 200
    place = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{cluster.namespace}/jobsets/{row['run']}"
    cluster.plane.request("DELETE", place, json.dumps({"propagationPolicy": "Background"}))
    for what in ("secrets", "configmaps"):
        cluster.until(lambda what=what: cluster.get("/api/v1", f"{what}/{row['run']}")[0] == 404, f"{what} are gone")
