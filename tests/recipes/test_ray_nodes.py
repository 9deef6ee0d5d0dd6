"""A Ray cluster over the nodes of a job ends when its driver does, on every node and with the same status. `ray` is a
stand-in here that joins, counts and ends nodes as Ray 2.60 does; with that Ray itself the same cases were tried by hand
(docs/launchers.md)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.recipes.framework import FOLDER

RAY = """#!/bin/bash
# ray start --head --port=P --block | ray start --address=H:P --block | ray status: a node is a file of its process.
cd "$RAY_NODES" || exit 1
if [ "$1" = status ]; then
  [ -e head ] || exit 1
  echo "Node status"; echo "Active:"; for node in node_*; do echo " 1 $node"; done
  echo "Pending:"; echo " 7 nodes that do not count"; exit 0
fi
case "$*" in *--block) ;; *) exit 64 ;; esac
case "$*" in
  *--head*) : > head ;;
  *) [ -e head ] || exit 1 ;;
esac
: > "node_$$"
trap 'rm -f node_$$; [ -z "$pause" ] || kill "$pause"; exit 0' TERM
sleep 600 & pause=$!
wait
"""


class Nodes:
    """The nodes of one job, as processes here."""

    def __init__(self, folder: Path, count: int, driver: str) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "nodes").mkdir()
        (folder / "bin/ray").write_text(RAY)
        (folder / "bin/ray").chmod(0o755)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.started = folder / "driver"
        os.mkfifo(self.started)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "RAY_NODES": str(folder / "nodes"), "DRIVER": str(self.started)}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, str(FOLDER / "ray_nodes.py"), str(count), "bash", "-c", driver]
        self.nodes = [
            subprocess.Popen(command, env={**environment, "NODE_RANK": str(rank)}, start_new_session=True)
            for rank in range(count)
        ]

    def until_driver(self) -> str:
        """What the driver says when it starts, with the nodes that it has then."""
        return self.started.read_text()

    def statuses(self) -> list[int]:
        return [node.wait(timeout=60) for node in self.nodes]

    def joined(self) -> list[Path]:
        return list((self.folder / "nodes").glob("node_*"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[Nodes]]:
    """Jobs that a test starts; what is left of them is ended."""
    jobs: list[Nodes] = []
    yield jobs
    for one in jobs:
        for node in one.nodes:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()


SERVES = 'ls "$RAY_NODES" | grep -c node_ > "$DRIVER"; exec sleep 600'


@pytest.mark.parametrize("status", [0, 3])
def test_every_node_ends_as_the_driver_does(status: int, job: list[Nodes], tmp_path: Path) -> None:
    job.append(Nodes(tmp_path, 3, f'ls "$RAY_NODES" | grep -c node_ > "$DRIVER"; exit {status}'))
    assert job[0].until_driver() == "3\n"  # it starts when all nodes are there
    assert job[0].statuses() == [status] * 3
    assert job[0].joined() == []


@pytest.mark.parametrize(
    ("victim", "sign", "statuses"),
    [
        (0, signal.SIGTERM, [143, 143]),  # the scheduler stops the job
        (0, signal.SIGKILL, [-9, 1]),  # the first node is lost
        (1, signal.SIGKILL, [1, -9]),  # another node is lost
    ],
)
def test_a_node_that_ends_takes_the_job_along(
    victim: int, sign: signal.Signals, statuses: list[int], job: list[Nodes], tmp_path: Path
) -> None:
    job.append(Nodes(tmp_path, 2, SERVES))
    assert job[0].until_driver() == "2\n"
    job[0].nodes[victim].send_signal(sign)
    assert job[0].statuses() == statuses
    for node, status in zip(job[0].nodes, statuses, strict=True):
        if status == -9:  # what a lost node leaves is the scheduler's to end
            os.killpg(node.pid, signal.SIGKILL)


def test_ray_that_dies_on_a_node_ends_the_job(job: list[Nodes], tmp_path: Path) -> None:
    job.append(Nodes(tmp_path, 2, SERVES))
    assert job[0].until_driver() == "2\n"
    for node in job[0].joined():
        os.kill(int(node.name.removeprefix("node_")), signal.SIGTERM)
    assert job[0].statuses() == [1, 1]


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "trainjob", "rayjob"])
def test_each_kind_of_a_kubernetes_job_tells_the_nodes_their_places(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    job = {"name": "j", "recipe": "verl-qwen3-8b-grpo", "container": "example.com/v:1", "kind": kind}
    spec = {
        "name": "c", "platform": "eks", "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 4}],
        "storage": [{"mount": "/fsx", "lustre": {}}], "jobs": [job],
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    words = ["submit", str(tmp_path / "spec.yaml"), "--dry-run", "--json"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    script = json.loads(done.stdout)["script"]
    if kind == "rayjob":  # KubeRay's cluster is the job's: the driver runs in it, once, and leaves the GPUs to it
        assert "ray_nodes.py" not in script
        assert '"nodes": 1, "gpus": 0, "command": ["python3", "-m", "verl.trainer.main_ppo"' in script
        return
    [launched] = [line for line in commands(yaml.safe_load(script)) if any("ray_nodes.py" in word for word in line)]
    launched = launched[launched.index("env") :]  # a TrainJob's command unpacks the code first
    assert [word.partition("=")[0] for word in launched[:4]] == ["env", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"]
    assert launched[4:7] == ["python3", "/trainwright/code/ray_nodes.py", "4"]


def commands(tree: object) -> list[list[str]]:
    """The commands of an object, each once: the pods of a job have the same."""
    lines: list[list[str]] = []
    for part in tree.items() if isinstance(tree, dict) else ():
        lines += [part[1]] if part[0] == "command" else commands(part[1])
    for part in tree if isinstance(tree, list) else ():
        lines += commands(part)
    return [line for number, line in enumerate(lines) if line not in lines[:number]]
