"""The real command: Ctrl-C and a closed pipe save before they end it, and a rank that never starts is named."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import free_ports
from single import corpus

from trainwright.train.checkpoint.stores import FolderStore


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


def command(data: str, folder: Path, *more: str) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "trainwright.train",
        "--model",
        "gpt2-124m-debug",
        "--data",
        data,
        "--steps",
        "100000",
    ]
    return [*words, "--folder", str(folder), "--sequence", "32", "--batch", "2", "--checkpoint-every", "1h", *more]


def wait_for_step(process: subprocess.Popen, step: int) -> None:
    for line in process.stderr:
        if line.startswith(b"step ") and int(line.split()[1].split(b"/")[0]) >= step:
            return
    pytest.fail("the run ended before that step")


def start(words: list[str], **environment: str) -> subprocess.Popen:
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    return subprocess.Popen(words, stderr=subprocess.PIPE, env={**clean, **environment})


def test_ctrl_c_saves(data, tmp_path):
    process = start(command(data, tmp_path))
    try:
        wait_for_step(process, 2)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().decode()
        assert process.wait(60) == 130, rest
    finally:
        process.kill()
        process.wait()
    [saved] = FolderStore(tmp_path / "checkpoints").complete_steps()
    assert f"stopping at step {saved} (SIGINT): saved" in rest
    assert json.loads((tmp_path / "result.json").read_text())["checkpoint"] == saved


def test_a_closed_pipe_saves(data, tmp_path):
    process = start(command(data, tmp_path))
    try:
        wait_for_step(process, 2)
        process.stderr.close()
        assert process.wait(60) == 141
    finally:
        process.kill()
        process.wait()
    assert FolderStore(tmp_path / "checkpoints").complete_steps()
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "requeue"


def test_a_rank_that_never_starts_is_named_soon(data, tmp_path):
    [port] = free_ports(1)
    words = command(data, tmp_path, "--startup-timeout", "6", "--parallel", "shard=3")
    world = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [start(words, **world, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in (0, 1)]
    try:
        messages = [rank.communicate(timeout=110)[1].decode() for rank in ranks]
        assert [rank.returncode for rank in ranks] == [70, 70], messages
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert "rank 2 did not start within 6 s" in messages[0]


def test_a_rank_0_that_never_starts_is_named_soon(data, tmp_path):
    [port] = free_ports(1)
    words = command(data, tmp_path, "--startup-timeout", "4", "--parallel", "shard=2")
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "1", "LOCAL_RANK": "1"}
    process = start(words, **world)
    try:
        message = process.communicate(timeout=110)[1].decode()
        assert process.returncode == 70, message
    finally:
        process.kill()
        process.wait()
    assert "rank 0 cannot be reached within 4 s" in message
