"""Guards: a loss that is not a number or far off, a step that never ends, memory that does not suffice."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from trainwright.errors import UserError

HUNG = 70  # exit status after a hang
WINDOW = 64  # losses that say what is usual
ENOUGH = 16
MOST_REWINDS = 3


@dataclass
class LossGuard:
    """What to do about a step, given its loss: nothing (`fine`), or `log`, `skip`, `rewind`, `stop`."""

    on_nan: str
    on_spike: str
    factor: float
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def before_update(self) -> bool:
        """Must the loss be read before the weights change? Only a step that may be skipped has to wait for that."""
        return self.on_nan == "skip" or self.on_spike == "skip"

    def judge(self, loss: float, norm: float | None = None) -> tuple[str, str]:
        """(what to do, why). A usual loss is remembered."""
        if not math.isfinite(loss):
            return self.on_nan, f"loss is {loss}"
        if norm is not None and not math.isfinite(norm):
            return self.on_nan, f"gradient norm is {norm}"
        limit = self.limit()
        if loss > limit:
            return self.on_spike, f"loss {loss:.4f} is above {limit:.4f}, {self.factor:g} times the usual spread"
        self.recent.append(loss)
        return "fine", ""

    def limit(self) -> float:
        """The highest loss that is still usual: median and median deviation, which one wild value cannot move."""
        if len(self.recent) < ENOUGH:
            return math.inf
        middle = median(self.recent)
        spread = 1.4826 * median(abs(x - middle) for x in self.recent)
        return middle + self.factor * max(spread, 0.01 * abs(middle))


class Watchdog:
    """Turns a hang into stacks of every thread and a non-zero exit. Each rank has its own; in a hang all bark."""

    def __init__(self, seconds: float, folder: Path, rank: int) -> None:
        self.seconds, self.path, self.rank = seconds, folder / f"stack-rank{rank:05d}.txt", rank
        self.beat_at = time.monotonic()
        self.ended = threading.Event()
        if seconds > 0:
            threading.Thread(target=self._watch, name="trainwright-watchdog", daemon=True).start()

    def beat(self) -> None:
        """A step was made."""
        self.beat_at = time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While something is waited for that may rightly take long."""
        self.beat_at = math.inf
        try:
            yield
        finally:
            self.beat()

    def close(self) -> None:
        self.ended.set()

    def _watch(self) -> None:
        while not self.ended.wait(min(1.0, self.seconds / 4)):
            quiet = time.monotonic() - self.beat_at
            if quiet > self.seconds:
                self._bark(quiet)

    def _bark(self, quiet: float) -> None:
        with self.path.open("w", encoding="utf-8") as out:
            faulthandler.dump_traceback(out, all_threads=True)
        sys.stderr.write(f"rank {self.rank}: no step for {quiet:.0f} s; stacks of all threads are in {self.path}\n")
        sys.stderr.flush()
        # The other threads hang, so nothing can be unwound: leave at once, and let the launcher end the other ranks.
        os._exit(HUNG)


def out_of_memory(error: torch.OutOfMemoryError, device: torch.device, micro_batch: int) -> UserError:
    """Advice instead of an allocator's dump."""
    total = torch.cuda.get_device_properties(device).total_memory / 2**30 if device.type == "cuda" else 0.0
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
    smaller = f"--micro-batch {micro_batch // 2}, " if micro_batch > 1 else ""
    return UserError(
        f"out of GPU memory: {peak:.1f} GiB used at the peak, the GPU has {total:.1f} GiB",
        where=str(error).splitlines()[0],
        fix=f"{smaller}--activation-checkpoint full, more ranks in shard=, or --offload-optimizer",
    )
