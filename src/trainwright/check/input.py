"""Reads a file, a pipe or standard input as text, never without end: pipes and standard input are read up to a limit,
devices and named pipes without a writer are refused."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from trainwright.files import MAX_BYTES
from trainwright.spec.source import OWN_STREAMS, SourceError, bounded, read_text


def read_input(path: str) -> str:
    """The text of a file; `-` is standard input, and a shell's `<(command)` is a pipe of this process."""
    if path == "-":
        return bounded(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    if not path.startswith(OWN_STREAMS):
        refuse_special(path)
    return read_text(Path(path))


def is_regular(path: str) -> bool:
    """Whether a directory entry can be read without waiting."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True  # reading it gives the error message


def refuse_special(path: str) -> None:
    if not is_regular(path):
        raise SourceError("a named pipe, socket or device is not read", path, fix="name a file, or use `-`")
