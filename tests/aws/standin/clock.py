"""The time of the stand-in, in seconds of AWS: either virtual (a test moves it) or real time, made faster."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """Virtual when `scale` is 0: it moves only by `sleep`. Otherwise one real second is `scale` seconds of AWS."""

    def __init__(self, scale: float = 0.0, pace: float = 1.0) -> None:
        self.scale = scale
        self.pace = pace  # how much faster than AWS resources come and go
        self._start = time.time()
        self._moved = 0.0

    def now(self) -> float:
        passed = (time.time() - self._start) * self.scale if self.scale else self._moved
        return self._start + passed

    def sleep(self, seconds: float) -> None:
        """What a client of a virtual clock does instead of sleeping."""
        self._moved += seconds

    def takes(self, seconds: float) -> float:
        """How long something takes that takes AWS so many seconds."""
        return seconds / self.pace

    def monotonic(self) -> float:
        return self.now()

    def when(self, moment: float) -> datetime:
        return datetime.fromtimestamp(moment, UTC)
