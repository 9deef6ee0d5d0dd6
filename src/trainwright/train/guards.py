"""Guards against NaN and loss spikes, hangs, and running out of memory or disk."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import re
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
from trainwright.train.diagnosis import dump_allocations, dump_collectives
from trainwright.train.disk import disk_full, no_space
from trainwright.train.rendezvous import EXIT_HUNG

DUMP_TIMEOUT = 30.0  # seconds that dumping the stacks may take
LOSS_WINDOW = 64  # recent losses that define the usual level
MIN_LOSSES = 16
MAX_SKIPS = 16  # in a row
MAX_REWINDS = 3  # without a new checkpoint between them


class RunFailed(UserError):
    """A run that had started and cannot continue: shown like any UserError, but the exit status is not wrong usage."""

    status = 1


@dataclass
class LossGuard:
    """What to do about a step, given its loss: nothing (`ok`), `log`, `skip`, `rewind` or `stop`."""

    on_nan: str
    on_spike: str
    factor: float
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=LOSS_WINDOW))
    skipped: int = 0  # steps in a row
    on_device: bool = False  # the GPU itself leaves the weights alone where loss or gradient is not finite

    @property
    def before_update(self) -> bool:
        """Whether the host needs the loss before the update: only where it decides that a step is skipped."""
        return self.on_spike == "skip" or (self.on_nan == "skip" and not self.on_device)

    def judge(self, loss: float, norm: float | None = None) -> tuple[str, str]:
        """(action, reason). An accepted loss joins the recent ones, so that a new level becomes the usual one."""
        action, why = self._assess(loss, norm)
        if action in ("ok", "log"):
            self.recent.append(loss)
        self.skipped = self.skipped + 1 if action == "skip" else 0
        if self.skipped >= MAX_SKIPS:
            return "stop", f"{why}, {self.skipped} steps in a row"
        return action, why

    def _assess(self, loss: float, norm: float | None) -> tuple[str, str]:
        if not math.isfinite(loss):
            return self.on_nan, f"loss is {loss}"
        if norm is not None and not math.isfinite(norm):
            return self.on_nan, f"gradient norm is {norm}"
        limit = self.limit()
        if loss > limit:
            return self.on_spike, f"loss {loss:.4f} is above {limit:.4f}, {self.factor:g} times the usual spread"
        return "ok", ""

    def limit(self) -> float:
        """The highest loss that is not a spike: median and median deviation, which outliers do not move."""
        if len(self.recent) < MIN_LOSSES:
            return math.inf
        middle = median(self.recent)
        spread = 1.4826 * median(abs(x - middle) for x in self.recent)
        return middle + self.factor * max(spread, 0.01 * abs(middle))


class Watchdog:
    """Turns a hang into a stack dump of every thread and a non-zero exit. Every rank has one; on a hang all fire."""

    def __init__(self, seconds: float, folder: Path, rank: int) -> None:
        self.seconds, self.path, self.rank = seconds, folder / f"stack-rank{rank:05d}.txt", rank
        self.beat_at = time.monotonic()
        self.ended = threading.Event()
        if seconds > 0:
            threading.Thread(target=self._watch, name="trainwright-watchdog", daemon=True).start()

    def beat(self) -> None:
        """Report progress."""
        self.beat_at = time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Suspended during an operation that may legitimately take long."""
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
                self._fire(quiet)

    def _fire(self, quiet: float) -> None:
        # A hanging file system may be the cause: exit even if the stacks cannot be written.
        deadline = threading.Timer(DUMP_TIMEOUT, os._exit, (EXIT_HUNG,))
        deadline.daemon = True
        deadline.start()
        where = f"stacks of all threads are in {self.path}"
        try:
            with self.path.open("w", encoding="utf-8") as out:
                faulthandler.dump_traceback(out, all_threads=True)
        except OSError as error:
            where = f"stacks of all threads are above ({error})"
            faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        try:
            trace = dump_collectives(self.path.parent, self.rank)
            where += f", its last collectives in {trace}" if trace else ""
        except (OSError, RuntimeError) as error:
            where += f" (no record of collectives: {error})"
        sys.stderr.write(f"rank {self.rank}: no step for {quiet:.0f} s; {where}\n")
        sys.stderr.flush()
        deadline.cancel()
        # The other threads hang, so nothing can be unwound: exit at once; the launcher ends the other ranks.
        os._exit(EXIT_HUNG)


def user_facing(
    error: BaseException, device: torch.device, micro_batch: int, folder: Path | None, sequence: int = 0
) -> BaseException:
    """The error to show: with advice where memory or disk ran out, otherwise unchanged. Where memory ran out, what
    occupied it is written into `folder`."""
    if isinstance(error, OSError) and disk_full(error):
        where = error.filename or folder or Path()
        return no_space(where, fix="free the disk, then give the same command again; checkpoints are complete")
    # For host memory torch raises a plain RuntimeError.
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
        return _out_of_memory(error, device, micro_batch, folder, sequence)
    return error


def _out_of_memory(
    error: BaseException, device: torch.device, micro_batch: int, folder: Path | None, sequence: int
) -> UserError:
    room, where = "", (str(error).splitlines() or ["host"])[0]
    if device.type == "cuda":
        total, peak = torch.cuda.get_device_properties(device).total_memory, torch.cuda.max_memory_allocated(device)
        room = f": {peak / 2**30:.1f} GiB used at the peak, the GPU has {total / 2**30:.1f} GiB"
    asked = re.search(r"you tried to allocate (\d+) bytes", str(error))
    if asked:
        own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        room = f": {int(asked[1]) / 2**30:,.1f} GiB were asked for at once, this machine has {own / 2**30:,.1f} GiB"
        where = "host"
    if folder is not None and folder.is_dir():
        with contextlib.suppress(OSError, RuntimeError):
            snapshot = dump_allocations(folder, int(os.environ.get("RANK", "0")), device)
            room += f"; what used it is in {snapshot}" if snapshot else ""
    shorter = f"a --sequence below {sequence:,}, " if sequence else ""
    offload = "" if asked or device.type == "cpu" else ", or --offload-optimizer"
    fix = f"{smaller(micro_batch)}--recompute full, {shorter}{'' if offload else 'or '}more ranks in shard={offload}"
    return UserError(f"out of memory{room}", where=where, fix=fix)


def smaller(micro_batch: int) -> str:
    """The next smaller micro-batch that divides this one."""
    fitting = [n for n in range(1, micro_batch) if micro_batch % n == 0]
    return f"--micro-batch {fitting[-1]}, " if fitting else ""
