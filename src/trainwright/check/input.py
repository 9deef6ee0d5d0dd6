"""Reads a file, a pipe or standard input as text, never without end: pipes and standard input are read up to a limit,
devices and named pipes without a writer are refused."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from trainwright.spec.source import MAX_BYTES, SourceError, decode, read_text

_OWN_STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_input(path: str) -> str:
    """The text of a file; `-` is standard input, and a shell's `<(command)` is a pipe of this process."""
    if path == "-":
        return _bounded(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    if path.startswith(_OWN_STREAMS):
        try:
            with open(path, "rb") as stream:
                return _bounded(stream.read(MAX_BYTES + 1), path)
        except OSError as error:
            raise SourceError(f"cannot read the file: {error.strerror or error}", path) from error
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


def _bounded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise SourceError(f"more than {MAX_BYTES // 2**20} MiB; at most that much is read", name)
    return decode(data, name)
