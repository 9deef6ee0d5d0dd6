"""Files of the control side are written whole: a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainwright.errors import UserError


def write_whole(path: Path, text: str) -> None:
    """Write aside and rename. A file that was there keeps its mode, and an interruption leaves it as it was."""
    path = path.resolve()  # a link goes on pointing at the file it points at
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    # By chance, as two machines that share a folder can have the same process numbers.
    aside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        # What only its owner may read is never open to others, not even while it is written.
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        if mode is not None:
            aside.chmod(mode)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """A file the user named: folders are made, and what the system refuses is told without a traceback."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or a device is written to, never replaced
        else:
            write_whole(path, text)
    except OSError as error:
        raise UserError(f"cannot write the file: {error.strerror or error}", where=str(path)) from error
