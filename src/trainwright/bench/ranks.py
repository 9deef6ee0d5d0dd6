"""Joins the ranks of a measurement: under torchrun, under srun, under `submit`, or as processes started here."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from trainwright.bench.operations import Group
from trainwright.errors import UserError

SPLIT = re.compile(r"^(AND|OR|MOD|DIV)\s*[:=_ ]?\s*(0x[0-9a-fA-F]+|\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all ranks of the measurement."""

    rank: int
    size: int
    local_rank: int
    device: torch.device
    backend: str
    hosts: tuple[str, ...]  # of every rank, in rank order

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def nodes(self) -> list[list[int]]:
        """The ranks of each node, nodes in the order of their first rank."""
        by_host: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            by_host.setdefault(host, []).append(rank)
        return list(by_host.values())


def launched(environment: dict[str, str] | os._Environ[str]) -> bool:
    """Whether a launcher has already started this process as one of several."""
    return "RANK" in environment or int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def start_local(words: Sequence[str], processes: int) -> int:
    """Run the same command as `processes` ranks on this machine; the worst exit status. One failure ends the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    shared = {
        "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **os.environ, "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
    }  # fmt: skip
    command = [sys.executable, "-m", "trainwright.bench", *words]
    started = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]
    try:
        return _worst_status(started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


def _worst_status(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all. A rank that ended by a signal, or by a crash, leaves the others waiting: they are ended."""
    running = {process.pid: process for process in started}
    worst = 0
    while running:
        pid, status = os.waitpid(-1, 0) if len(running) > 1 else (next(iter(running)), None)
        process = running.pop(pid, None)
        if process is None:
            continue
        process.returncode = process.wait() if status is None else os.waitstatus_to_exitcode(status)
        worst = max(worst, process.returncode if process.returncode >= 0 else 128 - process.returncode)
        if process.returncode not in (0, 1, 2):
            break
    return worst


def _slurm_variables() -> dict[str, str]:
    """What torch wants to know, from what srun sets."""
    if "RANK" in os.environ or "SLURM_STEP_NUM_TASKS" not in os.environ:
        return {}
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "localhost")
    first = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
    return {
        "RANK": os.environ["SLURM_PROCID"],
        "WORLD_SIZE": os.environ["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": os.environ.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR")
        or "".join(part or "" for part in (first.groups() if first else ())),
        "MASTER_PORT": os.environ.get("MASTER_PORT") or str(20_000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 20_000),
    }


@contextmanager
def joined(backend: str = "", timeout: float = 600.0) -> Iterator[Ranks]:
    """Meet the other ranks; NCCL where each has a GPU, else gloo."""
    os.environ.update(_slurm_variables())
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available() and backend != "gloo"
    if backend == "nccl" and not cuda:
        raise UserError("--backend nccl, but torch sees no GPU here", fix="--backend gloo, or check the driver")
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    chosen = "nccl" if cuda else "gloo"
    dist.init_process_group(chosen, timeout=timedelta(seconds=timeout))
    try:
        hosts: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(hosts, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        yield Ranks(dist.get_rank(), dist.get_world_size(), local, device, chosen, tuple(hosts))
    finally:
        dist.destroy_process_group()


def split_of(environment: dict[str, str] | os._Environ[str], word: str) -> str:
    """The split the user asked for: the option, else the two variables nccl-tests reads."""
    mask = environment.get("NCCL_TESTS_SPLIT_MASK", "")
    return word or environment.get("NCCL_TESTS_SPLIT", "") or (f"AND {mask}" if mask else "")


def colour(rank: int, word: str) -> int:
    """Which communicator a rank belongs to: `AND 0x7` puts equal low bits together, `DIV 8` equal nodes of eight."""
    match = SPLIT.match(word.strip())
    if not match:
        raise UserError(f"cannot read the split {word!r}", fix="AND 0x7, OR 0x7, MOD 8 or DIV 8, as NCCL_TESTS_SPLIT")
    kind, value = match[1].upper(), int(match[2], 0)
    if kind in ("MOD", "DIV") and value == 0:
        raise UserError(f"cannot split by {word!r}", fix="a number from 1 up")
    return {"AND": rank & value, "OR": rank | value, "MOD": rank % max(1, value), "DIV": rank // max(1, value)}[kind]


def make_group(ranks: Ranks, split: str) -> Group:
    """This rank's communicator: the world, or its part of a split. Every rank creates every group."""
    if not split:
        return Group(ranks.rank, tuple(range(ranks.size)))
    members: dict[int, list[int]] = {}
    for rank in range(ranks.size):
        members.setdefault(colour(rank, split), []).append(rank)
    if len({len(m) for m in members.values()}) > 1:
        raise UserError(f"the split {split!r} makes groups of different sizes from {ranks.size} ranks")
    own: Group | None = None
    for group in members.values():
        handle = dist.new_group(group)
        if ranks.rank in group:
            own = Group(group.index(ranks.rank), tuple(group), handle)
    assert own is not None
    return own
