"""Which rank this process is: from torchrun's variables, from Slurm's, or alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch

from trainwright.errors import UserError
from trainwright.train.diagnosis import record_allocations, record_collectives
from trainwright.train.rendezvous import startup_watchdog, wait_for_ranks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """This process among all: its rank, its rank on its node, and its device."""

    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0


def read_environment(environment: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """The variables torch wants, from whichever launcher set its own; empty for a process alone.

    SLURM_STEP_NUM_TASKS is set by srun only: inside an sbatch script without srun, a process is alone."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {}
    if "SLURM_STEP_NUM_TASKS" not in environment or "SLURM_PROCID" not in environment:
        return {}
    job = int(environment.get("SLURM_JOB_ID", "0"))
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": environment.get("MASTER_ADDR")
        or first_host(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "localhost")),
        # Every rank must derive the same port without communication, and two jobs on a node different ones.
        "MASTER_PORT": environment.get("MASTER_PORT") or str(20_000 + job % 20_000),
    }


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: `n[03-07,9],m1` is n03."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,]*))?", nodes)
    if not match:
        raise UserError(f"cannot read the node list {nodes!r}", fix="set MASTER_ADDR")
    return match[1] + (match[2] or "") + (match[3] or "")


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """A GPU of this rank's own where there is one, else the CPU."""
    if wanted == "cpu" or (not wanted and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("--device cuda, but torch sees no GPU here", fix="--device cpu, or check the driver")
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"local rank {local_rank}, but the node has {torch.cuda.device_count()} GPUs",
            fix="start one process per GPU of the node",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def restarted(environment: dict[str, str] | os._Environ[str]) -> bool:
    """Whether a scheduler or torchrun started this command again, and not a person."""
    counts = (environment.get(name) for name in ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"))
    return any(count and int(count) > 0 for count in counts)


def on_all_ranks(world: World, act: Callable[[], T]) -> T:
    """Call `act` on every rank and return this rank's result. An error of one rank is raised on all, so that none waits
    for a rank that left."""
    try:
        value, error = act(), None
    except Exception as caught:
        value, error = None, caught
    if world.size > 1:
        import torch.distributed as dist

        errors: list[UserError | None] = [None] * world.size
        dist.all_gather_object(errors, as_remote_error(world.rank, error) if error else None)
        error = error or next((e for e in errors if e), None)
    if error:
        raise error
    return value  # type: ignore[return-value]


def broadcast_from_first(world: World, text: str) -> str:
    """Rank 0's text, on every rank."""
    if world.size == 1:
        return text
    import torch.distributed as dist

    box = [text]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def as_remote_error(rank: int, error: Exception) -> UserError:
    """An error as the other ranks show it, also where the original cannot be pickled."""
    if isinstance(error, UserError):
        return UserError(f"rank {rank}: {error.what}", where=error.where, fix=error.fix)
    return UserError(f"rank {rank}: {type(error).__name__}: {error}")


@contextmanager
def join_world(wanted_device: str, timeout: float, startup: float) -> Iterator[World]:
    """Initialise the process group, and destroy it at the end."""
    os.environ.update(read_environment(os.environ))
    size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(wanted_device, local)
    record_allocations(device)
    if size == 1:
        yield World(0, 1, local, device)
        return
    import torch.distributed as dist

    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_size))
    limit = timedelta(seconds=timeout) if timeout else timedelta(days=1)
    if not dist.is_initialized():
        record_collectives(os.environ)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        with startup_watchdog(startup):
            store = wait_for_ranks(int(os.environ["RANK"]), size, startup)
            dist.init_process_group(backend, store=store, rank=int(os.environ["RANK"]), world_size=size, timeout=limit)
            dist.all_reduce(torch.zeros(1))
    yield World(dist.get_rank(), size, local, device)
    # Only after success: after an error the other ranks may be gone.
    dist.barrier()
    dist.destroy_process_group()
