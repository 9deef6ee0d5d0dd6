"""Measures, while a job trains, what tells a straggler from the ranks that wait for it. A trainer calls `StepWatch`;
any other script is watched without a change:

    torchrun --nproc-per-node=8 -m trainwright.health.watch train.py --its --own --arguments

Every `EVERY` steps all ranks time a fixed piece of work and a megabyte from each neighbour, and rank 0 appends a line
to `timings.jsonl`. That costs a few milliseconds; in between nothing happens but adding up times."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.health.stragglers import FILE, WINDOW, Straggler, Timings, describe, find

EVERY = 50  # steps between measurements; $TRAINWRIGHT_WATCH_EVERY changes it, 0 switches watching off
MESSAGE = 2**18  # float32 values: 1 MiB
SIZE, TIMES = {"cpu": (512, 12), "cuda": (2048, 20)}, 3  # of a matrix, how many products, how often


def every_from_environment() -> int:
    return int(os.environ.get("TRAINWRIGHT_WATCH_EVERY", EVERY))


class StepWatch:
    """Told of every step by every rank. All ranks must make the same steps."""

    def __init__(self, folder: Path, device: Any = None, every: int | None = None) -> None:
        self.folder, self.device = folder, device
        self.every = every_from_environment() if every is None else every
        self.steps, self.waited, self.since = 0, 0.0, time.perf_counter()
        self.rows: list[Timings] = []
        self.hosts: list[str] = []

    def wait(self, seconds: float) -> None:
        """Time this rank waited for data since the last step."""
        self.waited += seconds

    def step(self) -> list[Straggler]:
        """One step is done; on rank 0, the stragglers that a measurement after it showed."""
        import torch.distributed as dist

        self.steps += 1
        if not self.every or self.steps % self.every or not dist.is_available() or not dist.is_initialized():
            return []
        if dist.get_world_size() == 1:
            return []
        found = self._measure(dist)
        self.waited, self.since = 0.0, time.perf_counter()
        return found

    def _measure(self, dist: Any) -> list[Straggler]:
        import torch

        device = self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent = (time.perf_counter() - self.since) / self.every
        if not self.hosts:
            # Connections are made at first use: the first exchange is not counted.
            self.hosts = _gather_names(dist)
            exchange(dist, device, forward=True), exchange(dist, device, forward=False)
        mine = [spent, self.waited / self.every, work(device)]
        mine += [exchange(dist, device, forward=True), exchange(dist, device, forward=False)]
        table = [torch.empty(len(mine), device=device) for _ in self.hosts]
        dist.all_gather(table, torch.tensor(mine, device=device))
        columns = torch.stack(table).t().tolist()
        if dist.get_rank() != 0:
            return []
        row = Timings(self.steps, tuple(self.hosts), *(tuple(column) for column in columns))
        self.rows = [*self.rows, row][-WINDOW:]
        found = find(self.rows)
        self._write(row, found)
        return found

    def _write(self, row: Timings, found: list[Straggler]) -> None:
        from dataclasses import asdict

        line = {**asdict(row), "time": time.time(), "stragglers": [asdict(one) for one in found]}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / FILE).open("a") as out:
            out.write(json.dumps(line) + "\n")


def work(device: Any) -> float:
    """Seconds that a fixed piece of work takes here: the median of a few, since any process is interrupted at times."""
    import torch

    size, products = SIZE["cuda" if device.type == "cuda" else "cpu"]
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a = torch.full((size, size), 0.5, dtype=kind, device=device)  # no random numbers: the job's own must not move
    times = []
    with torch.no_grad():
        torch.mm(a, a)
        for _ in range(TIMES):
            _synchronize(device)
            began = time.perf_counter()
            for _ in range(products):
                torch.mm(a, a)
            _synchronize(device)
            times.append(time.perf_counter() - began)
    return sorted(times)[TIMES // 2]


def exchange(dist: Any, device: Any, forward: bool) -> float:
    """Seconds until a megabyte from a neighbour is here, counted from a moment when all ranks are ready."""
    import torch

    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    to, source = (after, before) if forward else (before, after)
    outgoing, incoming = (torch.zeros(MESSAGE, device=device) for _ in range(2))
    dist.all_reduce(torch.zeros(1, device=device))
    _synchronize(device)
    began = time.perf_counter()
    # The receive is posted first and waited for first: the time is that of the incoming link.
    operations = [dist.P2POp(dist.irecv, incoming, source), dist.P2POp(dist.isend, outgoing, to)]
    requests = dist.batch_isend_irecv(operations)
    requests[0].wait()
    _synchronize(device)
    took = time.perf_counter() - began
    for request in requests[1:]:
        request.wait()
    return took


def _synchronize(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _gather_names(dist: Any) -> list[str]:
    names: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(names, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    return names


def attach(folder: Path, report: Callable[[str], None]) -> StepWatch:
    """Watch every optimizer step and every wait for a DataLoader of this process, whatever framework makes them."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import dataloader

    watch = StepWatch(folder)
    first: list[int] = []  # several optimizers step once each: a step of the job ends with the first one's

    def stepped(optimizer: Any, *_: Any) -> None:
        first[:] = first or [id(optimizer)]
        if id(optimizer) == first[0]:
            for one in watch.step():
                report(describe(one))

    iterator = dataloader._BaseDataLoaderIter
    fetch = iterator.__next__

    def timed(self: Any) -> Any:
        began = time.perf_counter()
        try:
            return fetch(self)
        finally:
            watch.wait(time.perf_counter() - began)

    register_optimizer_step_post_hook(stepped)
    iterator.__next__ = timed  # type: ignore[method-assign]
    return watch


def main() -> None:
    """Run another script under the watch, as `python SCRIPT ARGUMENTS` would."""
    if len(sys.argv) < 2:
        print("usage: python -m trainwright.health.watch SCRIPT [ARGUMENTS]", file=sys.stderr)
        raise SystemExit(2)
    folder = Path(os.environ.get("TRAINWRIGHT_RUN", "."))
    attach(folder, lambda line: print(line, file=sys.stderr, flush=True))
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
