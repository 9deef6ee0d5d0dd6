"""Measures, while a job trains, what tells a straggler from the ranks that wait for it. A trainer calls `StepWatch`;
any other script is watched without a change:

    torchrun --nproc-per-node=8 -m trainwright.health.watch train.py --its --own --arguments

Every `EVERY` steps, and so rarely that it takes at most `SHARE` of the time, all ranks time a fixed piece of work and a
megabyte from each neighbour, and rank 0 appends a line to `timings.jsonl`. In between nothing happens but adding up."""

from __future__ import annotations

import json
import math
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.health.stragglers import FILE, WINDOW, Straggler, Timings, describe, find

EVERY = 50  # steps between measurements; $TRAINWRIGHT_WATCH_EVERY fixes another number, 0 switches watching off
SHARE = 0.005
MESSAGE = {"cpu": 2**18, "cuda": 2**22}  # float32 values: 1 and 16 MiB
SIZE, TIMES = {"cpu": (256, 30), "cuda": (2048, 20)}, 3  # of a matrix, how many products, how often


class StepWatch:
    """Told of every step by every rank. All ranks must make the same steps."""

    def __init__(self, folder: Path, device: Any = None) -> None:
        self.folder, self.device = folder, device
        wanted = os.environ.get("TRAINWRIGHT_WATCH_EVERY")
        self.every, self.fixed = int(wanted or EVERY), wanted is not None
        self.steps, self.due = 0, self.every  # since the last measurement, and when the next one is due
        self.waited, self.since = 0.0, time.perf_counter()
        self.rows: list[Timings] = []
        self.hosts: list[str] = []
        self.named: set[tuple[int, str]] = set()

    def wait(self, seconds: float) -> None:
        """Time this rank waited for data since the last step."""
        self.waited += seconds

    def step(self, number: int) -> list[Straggler]:
        """A step of this number is done; on rank 0, the stragglers that were not known before."""
        self.steps += 1
        if not self.due or self.steps < self.due:
            return []
        import torch.distributed as dist

        stragglers = self._measure(dist, number) if dist.is_initialized() and dist.get_world_size() > 1 else []
        self.steps, self.waited, self.since = 0, 0.0, time.perf_counter()
        new = [one for one in stragglers if (one.rank, one.cause) not in self.named]
        self.named = {(one.rank, one.cause) for one in stragglers}
        return new

    def _measure(self, dist: Any, number: int) -> list[Straggler]:
        import torch

        device = self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent = (time.perf_counter() - self.since) / self.steps
        if not self.hosts:
            # Connections are made at first use: the first exchange is not counted.
            self.hosts = _gather_names(dist)
            exchange(dist, device, forward=True), exchange(dist, device, forward=False)
        began = time.perf_counter()
        mine = [spent, self.waited / self.steps, work(device)]
        mine += [exchange(dist, device, forward=True), exchange(dist, device, forward=False)]
        mine.append(time.perf_counter() - began)
        table = [torch.empty(len(mine), device=device) for _ in self.hosts]
        dist.all_gather(table, torch.tensor(mine, device=device))
        *columns, costs = torch.stack(table).t().tolist()
        if not self.fixed:  # every rank has the same table, so all come to the same number
            self.due = max(self.every, math.ceil(max(costs) / (SHARE * max(columns[0]))))
        if dist.get_rank() != 0:
            return []
        row = Timings(number, tuple(self.hosts), *(tuple(column) for column in columns))
        self.rows = [*self.rows, row][-WINDOW:]
        stragglers = find(self.rows)
        self._write(row, stragglers)
        return stragglers

    def _write(self, row: Timings, stragglers: list[Straggler]) -> None:
        from dataclasses import asdict

        line = {**asdict(row), "time": time.time(), "stragglers": [asdict(one) for one in stragglers]}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / FILE).open("a") as out:
            out.write(json.dumps(line) + "\n")


def work(device: Any) -> float:
    """Seconds that a fixed piece of work takes here: the best of a few, since any process is interrupted at times."""
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
    return min(times)


def exchange(dist: Any, device: Any, forward: bool) -> float:
    """Seconds until a message from a neighbour is here: the best of a few."""
    import torch

    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    to, source = (after, before) if forward else (before, after)
    length = MESSAGE["cuda" if device.type == "cuda" else "cpu"]
    outgoing, incoming = (torch.zeros(length, device=device) for _ in range(2))
    return min(_transfer(dist, device, (outgoing, to), (incoming, source)) for _ in range(TIMES))


def _transfer(dist: Any, device: Any, outgoing: tuple[Any, int], incoming: tuple[Any, int]) -> float:
    """Seconds of one transfer, counted from a moment when all ranks are ready."""
    import torch

    dist.all_reduce(torch.zeros(1, device=device))
    _synchronize(device)
    began = time.perf_counter()
    # The receive is posted first and waited for first: the time is that of the incoming link.
    operations = [dist.P2POp(dist.irecv, *incoming), dist.P2POp(dist.isend, *outgoing)]
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
    counts: dict[int, int] = {}  # steps of each optimizer: of several, the first one's are the job's

    def stepped(optimizer: Any, *_: Any) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
        if id(optimizer) == next(iter(counts)):
            for one in watch.step(counts[id(optimizer)]):
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
