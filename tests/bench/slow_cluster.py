"""A real local Slurm whose nodes and links can be slowed with `tc`, for the tests of the search for slow ones.

python tests/bench/slow_cluster.py [--times 20]    slows a node or a link, chosen by seed, and counts right answers
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainwright.platforms.local import daemons, life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.state import Record

SOURCE = Path(__file__).parents[2] / "src"
TBF = ("root", "tbf", "rate", "40mbit", "burst", "32kbit", "latency", "50ms")


@contextlib.contextmanager
def slurm(nodes: int) -> Iterator[Record]:
    """A cluster in a home of its own, taken down whatever happens."""
    home = Path(tempfile.mkdtemp(prefix="tw"))
    before = os.environ.get("TRAINWRIGHT_HOME")
    os.environ["TRAINWRIGHT_HOME"] = str(home)
    try:
        yield life.up(LocalCluster("slow", (LocalQueue("train", nodes, cpus=2),)), own_network=True)
    finally:
        for name in state.names():
            life.down(name)
        os.environ.pop("TRAINWRIGHT_HOME")
        if before is not None:
            os.environ["TRAINWRIGHT_HOME"] = before
        shutil.rmtree(home)


def inside(record: Record, node: str, *command: str) -> None:
    pid = state.pid_of(record, f"node-{node}")
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "--", *command], check=True)


@contextlib.contextmanager
def slow_node(record: Record, node: str) -> Iterator[None]:
    inside(record, node, "tc", "qdisc", "add", "dev", "eth0", *TBF)
    try:
        yield
    finally:
        inside(record, node, "tc", "qdisc", "del", "dev", "eth0", "root")


@contextlib.contextmanager
def slow_link(record: Record, a: str, b: str) -> Iterator[None]:
    """A wire of their own between two nodes, slowed; everything else they send takes the bridge as before."""
    pids = [state.pid_of(record, f"node-{name}") for name in (a, b)]
    inside(record, a, "ip", "link", "add", "slow0", "type", "veth", "peer", "name", "slow0", "netns", str(pids[1]))
    try:
        for own, other in ((a, b), (b, a)):
            addresses = [record.cluster.node(name).address for name in (own, other)]
            inside(record, own, "sysctl", "-qw", "net.ipv4.conf.slow0.route_localnet=1")
            inside(record, own, "ip", "link", "set", "slow0", "up")
            inside(record, own, "ip", "route", "add", f"{addresses[1]}/32", "dev", "slow0", "src", addresses[0])
            inside(record, own, "tc", "qdisc", "add", "dev", "slow0", *TBF)
        yield
    finally:
        inside(record, a, "ip", "link", "del", "slow0")


def search(record: Record, nodes: int, size: str = "256K") -> dict[str, object]:
    """What `bench collectives --find-slow` answers, run by srun on every node."""
    environment = {"PYTHONPATH": str(SOURCE), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    output = Path(os.environ["TRAINWRIGHT_HOME"]) / "slow.json"
    output.unlink(missing_ok=True)
    words = ["-m", "trainwright.bench", "collectives", "--find-slow", "-e", size, "-o", str(output)]
    exports = ["env", *(f"{name}={value}" for name, value in environment.items())]
    command = ["srun", f"-N{nodes}", "--ntasks-per-node=1", *exports, sys.executable, *words]
    conf = {**os.environ, "SLURM_CONF": str(record.conf)}
    done = subprocess.run([*daemons.enter(record), *command], env=conf, capture_output=True, text=True, timeout=200)
    assert output.exists(), done.stderr
    return json.loads(output.read_text())


def trial(record: Record, nodes: int, seed: int) -> bool:
    """Slow a node or a link, chosen by the seed; whether exactly that one is named."""
    dice = random.Random(seed)
    names = [node.name for node in record.cluster.nodes]
    a, b = sorted(dice.sample(names, 2), key=names.index)
    with slow_node(record, a) if seed % 2 else slow_link(record, a, b):
        answer = search(record, nodes)
    wanted = ([a], []) if seed % 2 else ([], [f"{a} - {b}"])
    named = (answer["slow_nodes"], answer["slow_links"])
    print(f"{seed:3} wanted {wanted}, named {named}, {answer['rounds']} rounds", flush=True)
    return named == wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=6)
    args = parser.parse_args()
    with slurm(args.nodes) as record:
        right = sum(trial(record, args.nodes, seed) for seed in range(args.times))
    print(f"{right} of {args.times} right")
    return 0 if right == args.times else 1


if __name__ == "__main__":
    sys.exit(main())
