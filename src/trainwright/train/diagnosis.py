"""What is kept for the day a run hangs or runs out of memory: a record of the last collectives, and the history of the
GPU's allocations. Both are ring buffers of torch; only a fault writes them into the run folder."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

COLLECTIVES = 2000  # the last so many of each rank
ALLOCATIONS = 100_000
COLLECT_EVERY = 100  # steps


def record_collectives(environment: dict[str, str] | os._Environ[str]) -> None:
    """Before the process group is made: torch's flight recorder, unless the user has set it."""
    # Every torch we support reads the first name; the former one gives a warning on every rank.
    if not {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"} & environment.keys():
        environment["TORCH_FR_BUFFER_SIZE"] = str(COLLECTIVES)


def record_allocations(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.memory._record_memory_history(max_entries=ALLOCATIONS, stacks="python", context="alloc")


def dump_collectives(folder: Path, rank: int) -> Path | None:
    """The flight recorder of this rank, for `torchfrtrace`; None where there is none."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    own = torch._C._distributed_c10d
    dump = getattr(own, "_dump_nccl_trace" if torch.cuda.is_available() else "_dump_fr_trace", None)
    if dump is None:
        return None
    path = folder / f"collectives-rank{rank:05d}.pickle"
    path.write_bytes(dump())
    return path


def dump_allocations(folder: Path, rank: int, device: torch.device) -> Path | None:
    """The memory snapshot of this rank, for pytorch.org/memory_viz; None where there is none."""
    if device.type != "cuda":
        return None
    path = folder / f"memory-rank{rank:05d}.pickle"
    torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    return path


class GarbageCollector:
    """Collects at fixed steps only: else each rank pauses at a moment of its own, and all wait for each of them."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps % COLLECT_EVERY == 0:
            gc.collect(1)

    @contextmanager
    def controlled(self) -> Iterator[None]:
        enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()
