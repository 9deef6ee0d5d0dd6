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
from trainwright.train.checkpoint.checkpointer import disk_full

HUNG = 70  # exit status after a hang
LAST_WORDS = 30.0  # seconds that writing the stacks may take
WINDOW = 64  # losses that say what is usual
ENOUGH = 16
MOST_SKIPS = 16  # in a row: what goes on for longer is no accident
MOST_REWINDS = 3  # without a new checkpoint between them


class RunFailed(UserError):
    """A run that had begun and cannot go on: told as every UserError, but no wrong usage."""

    status = 1


@dataclass
class LossGuard:
    """What to do about a step, given its loss: nothing (`fine`), or `log`, `skip`, `rewind`, `stop`."""

    on_nan: str
    on_spike: str
    factor: float
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    skipped: int = 0  # steps in a row

    @property
    def before_update(self) -> bool:
        """Must the loss be read before the weights change? Only a step that may be skipped has to wait for that."""
        return self.on_nan == "skip" or self.on_spike == "skip"

    def judge(self, loss: float, norm: float | None = None) -> tuple[str, str]:
        """(what to do, why). A loss that is let pass is remembered, so that a new level becomes the usual one."""
        action, why = self._look(loss, norm)
        if action in ("fine", "log"):
            self.recent.append(loss)
        self.skipped = self.skipped + 1 if action == "skip" else 0
        if self.skipped >= MOST_SKIPS:
            return "stop", f"{why}, {self.skipped} steps in a row"
        return action, why

    def _look(self, loss: float, norm: float | None) -> tuple[str, str]:
        if not math.isfinite(loss):
            return self.on_nan, f"loss is {loss}"
        if norm is not None and not math.isfinite(norm):
            return self.on_nan, f"gradient norm is {norm}"
        limit = self.limit()
        if loss > limit:
            return self.on_spike, f"loss {loss:.4f} is above {limit:.4f}, {self.factor:g} times the usual spread"
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
        # A file system that hangs may be the very reason: the end comes even if the stacks cannot be written.
        last = threading.Timer(LAST_WORDS, os._exit, (HUNG,))
        last.daemon = True
        last.start()
        where = f"stacks of all threads are in {self.path}"
        try:
            with self.path.open("w", encoding="utf-8") as out:
                faulthandler.dump_traceback(out, all_threads=True)
        except OSError as error:
            where = f"stacks of all threads are above ({error})"
            faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        sys.stderr.write(f"rank {self.rank}: no step for {quiet:.0f} s; {where}\n")
        sys.stderr.flush()
        last.cancel()
        # The other threads hang, so nothing can be unwound: leave at once, and let the launcher end the other ranks.
        os._exit(HUNG)


def explained(error: BaseException, device: torch.device, micro_batch: int) -> BaseException:
    """The error as the user shall read it: advice where memory or disk ran out, any other as it is."""
    if isinstance(error, OSError) and disk_full(error):
        return UserError("no space left", where=str(error.filename or ""), fix="free the disk; checkpoints are whole")
    # For host memory torch raises a plain RuntimeError.
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
        return _out_of_memory(error, device, micro_batch)
    return error


def _out_of_memory(error: BaseException, device: torch.device, micro_batch: int) -> UserError:
    room = ""
    if device.type == "cuda":
        total, peak = torch.cuda.get_device_properties(device).total_memory, torch.cuda.max_memory_allocated(device)
        room = f": {peak / 2**30:.1f} GiB used at the peak, the GPU has {total / 2**30:.1f} GiB"
    return UserError(
        f"out of memory{room}",
        where=(str(error).splitlines() or ["host"])[0],
        fix=f"{smaller(micro_batch)}--recompute full, more ranks in shard=, or --offload-optimizer",
    )


def smaller(micro_batch: int) -> str:
    """The next smaller micro-batch that divides the batch as this one does."""
    fitting = [n for n in range(1, micro_batch) if micro_batch % n == 0]
    return f"--micro-batch {fitting[-1]}, " if fitting else ""
