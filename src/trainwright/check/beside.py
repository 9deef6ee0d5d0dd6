"""Files that lie beside the one at hand and belong to it, found by the name that it uses."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from trainwright.check.model import File
from trainwright.spec.mistakes import SpecError
from trainwright.spec.source import SourceError, read_text

_LARGEST = 2**20


def file_beside(path: str, name: str) -> File | None:
    """The file that `path` names as `name`, from its folder or the one above; None where it is not there or of no kind
    that is known."""
    if not name or name.startswith(("/", "~", "$")) or "$" in name:
        return None
    folder = Path(os.path.abspath(path)).parent
    for place in (folder, folder.parent):
        candidate = place / name
        try:
            if candidate.is_file() and candidate.stat().st_size < _LARGEST:
                return _read(str(candidate), candidate.stat().st_mtime_ns)
        except OSError:
            continue
    return None


@lru_cache(maxsize=64)
def _read(path: str, _changed: int) -> File | None:
    from trainwright.check.readers.recognise import read_file

    try:
        return read_file(path, read_text(Path(path)))
    except (SourceError, SpecError):
        return None  # reported where that file itself is checked
