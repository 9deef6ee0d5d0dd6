"""Processor time of a call, for tests that compare sizes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], tries: int = 1) -> float:
    """The least time of some tries, without the garbage collector, which looks at all that earlier tests left."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(tries):
            start = time.process_time()
            work()
            best = min(best, time.process_time() - start)
    finally:
        gc.enable()
    return best
