"""The environments of this machine's processes: daemons and ranks are known by the marks in them, not by their pids."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path


def environment(pid: int) -> list[bytes]:
    """A process's variables. Linux shows none while a process is inside exec, for some microseconds: a program (which
    kernel threads and zombies do not have) is asked again, so that no process of ours is overlooked."""
    path = Path(f"/proc/{pid}/environ")
    text = path.read_bytes()
    for _ in range(10):
        if text or not _has_program(pid):
            break
        time.sleep(0.001)
        text = path.read_bytes()
    return text.split(b"\0")


def environments() -> Iterator[tuple[int, list[bytes]]]:
    """Every process whose variables may be read, but for this one."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        pid = int(entry)
        if pid == os.getpid():
            continue
        try:
            words = environment(pid)
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
        yield pid, words


def _has_program(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return True
