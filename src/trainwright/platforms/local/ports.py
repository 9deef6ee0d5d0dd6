"""Free ports for a cluster whose nodes share the machine's network; two that start at once get different ones."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    """`count` free ports, kept from other clusters of this user until the block (which binds them) ends."""
    path = Path(tempfile.gettempdir()) / f"trainwright-ports-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _free(count)


def _free(count: int) -> tuple[int, ...]:
    # All are held open until the last is found, or the kernel could offer the same one twice.
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in held)
