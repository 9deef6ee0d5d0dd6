"""Writing a file the user asked for: folders are made, and what the system refuses is told without a traceback."""

from __future__ import annotations

from pathlib import Path

from trainwright.errors import UserError


def write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the file: {error.strerror or error}", where=str(path)) from error
