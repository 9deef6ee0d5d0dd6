"""Files that lie beside the one at hand and belong to it, found by the name that it uses."""

from __future__ import annotations

import filecmp
import os
import stat
from functools import lru_cache
from pathlib import Path

from trainwright.check.model import File
from trainwright.spec.mistakes import SpecError
from trainwright.spec.source import SourceError

_LARGEST = 2**20
_FURTHER_UP = 2  # folders above those of a script, from where it may be called too
# What the rules asked for since the last `looked_up`: paths, there or not; with a slash at its end a directory with all
# its files; a single dot is the current directory.
_LOOKED_UP: set[str] = set()


def looked_up() -> list[str]:
    """The paths that were asked for since the last call: a kept result is true only while they stay as they are."""
    paths = sorted(_LOOKED_UP)
    _LOOKED_UP.clear()
    return paths


def note_lookup(path: str) -> None:
    """A rule depends on this path."""
    _LOOKED_UP.add(path)


def note_listing(folder: str) -> None:
    """A rule depends on the names and the files of this directory, if it is there."""
    _LOOKED_UP.add(f"{folder}/")


def is_directory(path: str) -> bool:
    _LOOKED_UP.add(path)
    return os.path.isdir(path)


def file_beside(path: str, name: str, folders: list[str] | None = None) -> File | None:
    """The file that `path` names as `name`, from its folder or the one above, or from `folders`; None where it is not
    there or of no kind that is known."""
    if not name or name.startswith(("/", "~", "$")) or "$" in name:
        return None
    places = _places(path, name, folders)
    return next((file for place in places if (file := file_at(str(place))) is not None), None)


def text_beside(path: str, name: str, folders: list[str] | None = None) -> str | None:
    """The text of the file that `path` names as `name`, from its folder or the one above, or from `folders`; empty
    where it cannot be read or is too large."""
    if not name or name.startswith("~") or "$" in name:
        return None
    for place in _places(path, name, folders):
        try:
            if place.is_file():
                return place.read_text(encoding="utf-8", errors="replace") if place.stat().st_size < _LARGEST else ""
        except OSError:
            return ""
    return None


def _places(path: str, name: str, folders: list[str] | None) -> list[Path]:
    """Where the file may be. In several of `folders` it may be any of them, and is none."""
    own = Path(os.path.abspath(path)).parent
    places = [Path(folder) / name for folder in folders] if folders is not None else [own / name, own.parent / name]
    _LOOKED_UP.update(map(str, places))
    there = [place for place in places if os.path.isfile(place)] if folders is not None else []
    if there and folders == [str(own), str(own.parent)]:
        there += [place for place in _further_up(own.parent, name) if os.path.isfile(place)]
    if len(there) > 1 and not all(filecmp.cmp(there[0], other) for other in there[1:]):
        return []
    return places


def _further_up(folder: Path, name: str) -> list[Path]:
    """The same name below the folders above: a script may be called from the top of its repository."""
    places = [above / name for above in list(folder.parents)[:_FURTHER_UP]]
    _LOOKED_UP.update(map(str, places))
    return places


def file_at(path: str, word: str = "") -> File | None:
    """The file of a path, read; None where there is none of a kind that is known, or without `word` in it."""
    _LOOKED_UP.add(os.path.abspath(path))
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size >= _LARGEST:
        return None
    return _read(path, word, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: str, word: str, _changed: int) -> File | None:
    from trainwright.check.input import read_input
    from trainwright.check.readers.recognise import read_file

    try:
        text = read_input(path)
        return read_file(path, text) if word in text else None
    except (SourceError, SpecError):
        return None  # reported where that file itself is checked
