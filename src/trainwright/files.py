"""Reads and writes of files that a user names. Reads are bounded and never wait; writes are atomic: a reader sees the
old file or the new one, never half of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainwright.errors import UserError

MAX_BYTES = 8 * 1024 * 1024  # of a file that people write by hand


def read_regular(path: Path) -> bytes:
    """A regular file's bytes. A named pipe would wait for a writer and a device may have no end: both are refused."""
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode):
            raise UserError("this is not a regular file", where=str(path), fix="name a file, not a folder or a pipe")
        if facts.st_size > MAX_BYTES:
            raise UserError(
                f"the file is {facts.st_size / 2**20:.1f} MiB; at most {MAX_BYTES // 2**20} MiB are read",
                where=str(path),
                fix="name the configuration file itself, not data beside it",
            )
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"cannot read the file: {error.strerror or error}", where=str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file and rename it. An existing file keeps its mode, and survives an interruption unchanged."""
    path = path.resolve()  # a symbolic link keeps its target
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    # A random name: two machines that share a folder can have the same process ids.
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        # A file that only its owner may read is private while it is written, too.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        # Bytes of an old file that are no UTF-8 and were read with surrogateescape are written as they were.
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(text)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file the user named: folders are created, and an error of the system is a UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or a device is written to, never replaced
        else:
            write_whole(path, text)
    except OSError as error:
        raise UserError(f"cannot write the file: {error.strerror or error}", where=str(path)) from error
