"""Fault injection: points where a test can kill this process, to prove that a checkpoint is never lost.

`TRAINWRIGHT_FAULT=rank:point:count` kills rank `rank` with SIGKILL the `count`-th time it passes `point`."""

from __future__ import annotations

import os
import signal

_passed: dict[str, int] = {}


def point(name: str) -> None:
    """A named point; does nothing unless the environment names it."""
    wanted = os.environ.get("TRAINWRIGHT_FAULT")
    if not wanted:
        return
    rank, where, count = wanted.split(":")
    if where != name or rank != os.environ.get("RANK", "0"):
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(count):
        os.kill(os.getpid(), signal.SIGKILL)
