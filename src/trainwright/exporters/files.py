"""Reads small files of the kernel without trusting them: whatever stands there, a reader gets a short text, a number or
None. A file may be missing, a dangling link, a pipe, huge, binary, or closed to this user."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

LARGEST = 1 << 16  # bytes; the kernel's own files are a page
MOST_NAMES = 4096
_NUMBER = re.compile(r"\d{1,20}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")


class Tree:
    """Files below a root; `unreadable` counts what was there and held nothing usable."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = str(root).rstrip("/")
        self.unreadable = 0

    def read(self, path: str, largest: int = LARGEST) -> str | None:
        """The start of a regular file as text; None where there is none or it cannot be read."""
        try:
            # A pipe without a writer would hold a plain open for ever.
            handle = os.open(self.root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.unreadable += not isinstance(error, FileNotFoundError)
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                self.unreadable += 1
                return None
            return os.read(handle, largest).decode(errors="replace").strip()
        except OSError:  # EIO, EOPNOTSUPP: the driver's answer for a counter that the device does not have
            self.unreadable += 1
            return None
        finally:
            os.close(handle)

    def number(self, path: str) -> int | None:
        """A file that holds one count. What does not fit 64 bits is no count."""
        text = self.read(path, 64)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or int(text) >= 1 << 64:
            self.unreadable += 1
            return None
        return int(text)

    def names(self, path: str) -> list[str]:
        """The names in a folder, in order; strange ones are left out."""
        try:
            with os.scandir(self.root + path) as entries:
                names = [entry.name for _, entry in zip(range(MOST_NAMES), entries)]  # noqa: B905
        except OSError:
            return []
        return sorted(name for name in names if _NAME.fullmatch(name))
