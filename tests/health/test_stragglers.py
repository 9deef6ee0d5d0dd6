"""Stragglers: measurements name the rank and its cause, and nobody in a healthy job; of real ranks, the one that was
slowed is named while they train."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

import trainwright
from trainwright.cli.main import cli
from trainwright.health.__main__ import main
from trainwright.health.stragglers import Timings, describe, find, read
from trainwright.health.watch import StepWatch
from trainwright.platforms.local import life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import run_on_head
from trainwright.platforms.local.state import Record

SOURCE = Path(trainwright.__file__).parents[1]
HOSTS = ("a", "a", "b", "b", "c", "c", "d", "d")


def measured(count: int = 5, seed: int = 0, **changed: dict[int, float]) -> list[Timings]:
    """Measurements of eight ranks on four nodes, with some noise; `data_s={3: 9}` makes rank 3's nine times as long."""
    chance = random.Random(seed)
    normal = {"step_s": 1.0, "data_s": 0.02, "compute_s": 0.05, "from_previous_s": 0.004, "from_next_s": 0.004}
    rows = []
    for step in range(count):
        columns = [
            tuple(base * chance.uniform(0.95, 1.05) * changed.get(name, {}).get(rank, 1) for rank in range(8))
            for name, base in normal.items()
        ]
        rows.append(Timings(step, HOSTS, *columns))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_named_in_a_healthy_job(seed: int) -> None:
    assert find(measured(seed=seed)) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rank", [0, 3, 7])
@pytest.mark.parametrize("cause", ["data", "compute"])
def test_the_slow_rank_and_its_cause_are_named(cause: str, rank: int, seed: int) -> None:
    (one,) = find(measured(seed=seed, **{f"{cause}_s": {rank: 20 if cause == "data" else 1.6}}))
    assert (one.rank, one.host, one.cause) == (rank, HOSTS[rank], cause)


def test_a_node_that_sends_slowly_is_named() -> None:
    """Node b holds ranks 2 and 3: its links to other nodes go from 3 to 4 and from 2 to 1."""
    found = find(measured(from_previous_s={4: 30}, from_next_s={1: 30}))
    assert {(one.host, one.cause) for one in found} == {("b", "network")}


def test_a_link_that_is_slow_one_way_is_named_as_a_link() -> None:
    (one,) = find(measured(from_previous_s={4: 30}))
    assert (one.rank, one.cause) == (3, "network")
    assert "the link to rank 4 on c" in describe(one)


def test_links_of_a_rank_that_computes_slowly_are_not_blamed() -> None:
    (one,) = find(measured(compute_s={3: 3}, from_previous_s={4: 30, 3: 30}, from_next_s={2: 30, 3: 30}))
    assert (one.rank, one.cause) == (3, "compute")


def test_the_command_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stragglers", str(tmp_path)]) == 2
    lines = [json.dumps(asdict(row)) for row in measured(compute_s={3: 3})]
    (tmp_path / "timings.jsonl").write_text("\n".join([*lines, lines[0][:40]]))
    assert main(["--stragglers", str(tmp_path)]) == 1
    assert "straggler: rank 3 on b computes" in capsys.readouterr().out
    (tmp_path / "timings.jsonl").write_text("\n".join(json.dumps(asdict(row)) for row in measured()))
    assert CliRunner().invoke(cli, ["health", "--stragglers", str(tmp_path)]).output == "no straggler among 8 ranks\n"


def test_two_measurements_are_too_few() -> None:
    assert find(measured(2, compute_s={3: 3})) == []
    assert find([]) == []


# A job of another framework, as far as we are concerned: DDP, a DataLoader, an optimizer, and not a word about us.
SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
slow = os.environ.get("SLOW_DATA") == os.environ["RANK"]
class Data(Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i):
        if slow: time.sleep(0.004)
        return torch.ones(64)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step, batch in zip(range(int(sys.argv[1])), DataLoader(Data(), batch_size=8)):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 0: print("pid", os.getpid(), flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush(), sys.stderr.flush()
os._exit(0)  # torch may abort while the interpreter ends on a busy machine, which is not what is tested
"""


def start(folder: Path, rank: int, port: int, steps: int, **more: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(SCRIPT)
    place = {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
    environment = {**os.environ, **place, "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    environment |= {"TRAINWRIGHT_RUN": str(folder), "SLURMD_NODENAME": f"node-{rank}"}
    environment |= {"TRAINWRIGHT_WATCH_EVERY": "20", **more}
    environment = {name: value for name, value in environment.items() if value}
    command = [sys.executable, "-m", "trainwright.health.watch", "train.py", str(steps)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def named(text: str) -> set[str]:
    return {line.split(" on ")[0] for line in text.splitlines() if line.startswith("straggler")}


def test_any_script_is_watched_and_the_rank_with_slow_data_is_named(tmp_path: Path) -> None:
    port = free_port()
    ranks = [start(tmp_path, rank, port, 120, SLOW_DATA="1") for rank in range(3)]
    outputs = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0], outputs
    rows = read(tmp_path)
    assert [row.step for row in rows] == [20, 40, 60, 80, 100, 120]
    assert rows[0].hosts == ("node-0", "node-1", "node-2")
    data = [one for one in find(rows) if one.cause == "data"]
    assert [(one.rank, one.host) for one in data] == [(1, "node-1")]
    assert "straggler: rank 1" in named(outputs[0][1])
    last = json.loads((tmp_path / "timings.jsonl").read_text().splitlines()[-1])
    assert any(one["cause"] == "data" and one["rank"] == 1 for one in last["stragglers"])


@pytest.mark.slow
def test_a_rank_that_is_held_back_is_named_while_it_trains(tmp_path: Path) -> None:
    """Rank 2 is stopped four fifths of the time: the fixed work takes it longer than the others."""
    port = free_port()
    ranks = [start(tmp_path, rank, port, 160) for rank in range(3)]
    assert ranks[2].stdout is not None
    ranks[2].stdout.readline()
    ended = threading.Event()

    def hold_back() -> None:
        while not ended.wait(0.002):
            os.kill(ranks[2].pid, signal.SIGSTOP)
            ended.wait(0.008)
            os.kill(ranks[2].pid, signal.SIGCONT)

    brake = threading.Thread(target=hold_back)
    brake.start()
    outputs = [ranks[0].communicate(timeout=200)]
    ended.set()
    brake.join()
    outputs += [process.communicate(timeout=60) for process in ranks[1:]]
    assert [process.returncode for process in ranks] == [0, 0, 0], outputs
    slow = [one for one in find(read(tmp_path)) if one.cause == "compute"]
    assert slow, read(tmp_path)
    assert (slow[0].rank, slow[0].host) == (2, "node-2")


def straggle_over_slurm(record: Record, folder: Path, steps: int) -> str:
    """The script on three nodes of a local Slurm, one rank each; what rank 0 printed."""
    (folder / "train.py").write_text(SCRIPT)
    place = "RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=3 MASTER_ADDR=train-1 MASTER_PORT=29411 GLOO_SOCKET_IFNAME=eth0"
    ours = f"TRAINWRIGHT_RUN={folder} TRAINWRIGHT_WATCH_EVERY=10 PYTHONPATH={SOURCE}"
    command = f"cd {folder}; {place} {ours} exec {sys.executable} -m trainwright.health.watch train.py {steps} 2>&1"
    return run_on_head(record, ["srun", "-N3", "--ntasks-per-node=1", "sh", "-c", command])


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="a node's own network needs root")
def test_the_node_whose_network_is_slowed_is_named(own_home: Path, tmp_path: Path) -> None:
    record = life.up(LocalCluster("lag", (LocalQueue("train", 3),)), own_network=True)
    node = state.pid_of(record, "node-train-2")
    shape = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "80mbit", "burst", "32kbit", "latency", "2s"]
    subprocess.run(["nsenter", f"--net=/proc/{node}/ns/net", "--", *shape], check=True)
    printed = straggle_over_slurm(record, tmp_path, 60)
    found = find(read(tmp_path))
    assert found, printed
    assert (found[0].host, found[0].cause) == ("train-2", "network"), found


@pytest.mark.slow
def test_a_measurement_takes_a_small_share_of_the_time(tmp_path: Path) -> None:
    """Without a fixed number the steps between measurements grow until they take half a per cent."""
    port = free_port()
    ranks = [start(tmp_path, rank, port, 60, TRAINWRIGHT_WATCH_EVERY="") for rank in range(3)]
    outputs = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0], outputs
    assert [row.step for row in read(tmp_path)] == [50], "these steps are far too short for another one"


def test_between_measurements_a_step_costs_a_counter(tmp_path: Path) -> None:
    watch = StepWatch(tmp_path)
    watch.due = 10**9
    began = time.perf_counter()
    for number in range(10_000):
        watch.wait(0.0)
        watch.step(number)
    assert (time.perf_counter() - began) / 10_000 < 0.0001


def test_damaged_measurements_are_left_out(tmp_path: Path) -> None:
    good = json.dumps(asdict(measured(1)[0]))
    rows = [good, good.replace('"data_s": [', '"data_s": ["x", '), good.replace('"data_s": [', '"data_s": [1, '), "[]"]
    (tmp_path / "timings.jsonl").write_bytes("\n".join(rows).encode() + b"\n\xff\xfe\n")
    assert len(read(tmp_path)) == 1
