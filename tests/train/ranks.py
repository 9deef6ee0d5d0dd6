"""Real gloo ranks for tests, forked from one warm server process, so that torch is imported once and not per rank."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["pytest", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "trainwright.train.loop",
     "frozen_heap"]
)  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _rank(function: Callable, rank: int, world: int, meeting: str, environment: dict[str, str], args, answers) -> None:
    os.setpgrp()
    os.environ.update(environment)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        if world > 1:
            dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
        answers.put((rank, function(*args), None))
    except BaseException:
        answers.put((rank, None, traceback.format_exc()))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def start_ranks(function: Callable, world: int, *args: Any, **environment: str):
    """Processes running `function(*args)`, each a rank of one group, and the queue of their answers."""
    meeting = tempfile.mktemp(prefix="trainwright-meeting-")
    answers = context.Queue()
    processes = [
        context.Process(target=_rank, args=(function, r, world, meeting, environment, args, answers), daemon=True)
        for r in range(world)
    ]
    for process in processes:
        process.start()
    return processes, answers, Path(meeting)


def run_ranks(function: Callable, world: int, *args: Any, limit: float = 120, **environment: str) -> list[Any]:
    """What `function(*args)` returns on each rank within `limit` seconds; a failure of any is this test's failure."""
    processes, answers, meeting = start_ranks(function, world, *args, **environment)
    try:
        results = {}
        for _ in range(world):
            rank, value, error = answers.get(timeout=limit)
            assert error is None, f"rank {rank}:\n{error}"
            results[rank] = value
        for process in processes:
            process.join(30)
        return [results[r] for r in range(world)]
    finally:
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()
        meeting.unlink(missing_ok=True)
