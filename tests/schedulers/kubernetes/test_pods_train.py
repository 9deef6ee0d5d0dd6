"""The pods of each kind, run for real: what a manifest says is started as processes of this machine, with the variables
that the kind's controller gives every pod and `$(NAME)` filled in as the kubelet does."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_kubernetes_kinds import pods

import trainwright
from trainwright.catalog.environment import EnvVar
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.schedulers.torchrun import PORT

TINY = "--model llama3.2-1b-debug --data builtin:stdlib --steps 2 --sequence 32 --batch 4 --checkpoint-every never"


def given(kind: str, node: int, port: int) -> dict[str, str]:
    """What the controller of a kind tells the pod of a node."""
    if kind == "pytorchjob":
        return {"RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    if kind == "jobset":
        return {"JOB_COMPLETION_INDEX": str(node)}
    return {
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": str(node), "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }  # fmt: skip


def commands(kind: str, launch: Launch) -> list[list[str]]:
    document = yaml.safe_load(KubernetesScheduler(PodSettings(), kind).render(launch).text)
    if kind == "trainjob":
        return [document["spec"]["trainer"]["command"]] * 2
    found = [pod["containers"][0]["command"] for pod in pods(document)]
    return found if len(found) == 2 else found * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "trainjob"])
def test_two_pods_train_together(kind: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = EnvVar("TRAINWRIGHT_RUN", str(tmp_path / "run"), "")
    words = ("python3", "-m", "trainwright.train", *TINY.split())
    launch = Launch("job", words, tmp_path / "run", nodes=2, container="i", environment=(run,))
    common = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", run.name: run.value,
        "PYTHONPATH": str(Path(trainwright.__file__).parents[1]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    started = []
    for node, command in enumerate(commands(kind, launch)):
        told = given(kind, node, port)
        filled = [re.sub(r"\$\((\w+)\)", lambda name, told=told: told[name[1]], word) for word in command]  # type: ignore[misc]
        # There is no DNS here that knows the pods, and the port may be taken.
        filled = [re.sub(r"^--master-addr=.*", "--master-addr=127.0.0.1", word) for word in filled]
        filled = [word.replace(f"--master-port={PORT}", f"--master-port={port}") for word in filled]
        started.append(
            subprocess.Popen(filled, env=common | told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    try:
        said = [pod.communicate(timeout=200)[0] for pod in started]
    finally:
        for pod in started:
            pod.kill()
    assert [pod.returncode for pod in started] == [0, 0], said
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
