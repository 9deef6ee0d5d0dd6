"""What lies around a script in its repository: the directories in which a user may call it, and the small texts that
may say how it is started (a README, a script that submits it). What an answer depends on is noted for the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from trainwright.check.beside import note_listing, note_lookup

_LEVELS, _UNROOTED = 8, 4  # directories upwards: to the root of a repository, and where there is none
_FILES, _LARGEST = 40, 100_000  # of one directory, bytes
RUNNERS = (
    "Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", "Taskfile.yml", "Taskfile.yaml", "pyproject.toml"
)  # fmt: skip
_NAMES = (*RUNNERS, "Snakefile", ".gitignore")
_DOCUMENTS = (".md", ".rst", ".txt", ".adoc")
_JOBS = (".sbatch", ".slurm", ".job")
_SUFFIXES = (*_DOCUMENTS, ".sh", ".bash", ".py", ".zsh", ".fish", ".ps1", ".bat", ".cmd", ".R", ".jl", ".pl", *_JOBS)
# Where repositories keep what starts their jobs, and what explains it.
_BESIDE = (
    "scripts",
    "script",
    "slurm",
    "bin",
    "tools",
    "launch",
    "launchers",
    "jobs",
    "cluster",
    "docs",
    "hpc",
    "sbatch",
    "utils",
    "experiments",
    "job_scripts",
    "slurm_scripts",
    "src",
    "train",
    "training",
    "examples",
)
_BELOW = 8  # directories in each of these
_FRESH = 5  # seconds that an answer about a directory is kept: a check reads it once, an editor soon again
_CALLS = [0]  # of `forget`


def forget() -> None:
    """Read all texts again: what is kept in a file must be true of the files as they are now."""
    _CALLS[0] += 1


def directories(path: str) -> list[Path]:
    """Where a user may call a script: in its directory, in those above it up to the root of its repository, here."""
    note_lookup(".")
    return [*folders_above(path)[0], Path.cwd()]


def names_in(directory: str) -> tuple[str, ...]:
    """What lies in a directory."""
    note_listing(directory)
    return _names(directory, (*_now(), _changed(directory)))


@lru_cache(maxsize=64)
def _names(directory: str, _state: tuple[int, ...]) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(directory)))
    except OSError:
        return ()


def folders_above(path: str) -> tuple[list[Path], bool]:
    """The directory of a file and those above it, and whether the last is the root of a repository."""
    above = Path(path).absolute().parents
    for level, place in enumerate(above[:_LEVELS]):
        note_lookup(str(place / ".git"))
        if (place / ".git").exists():
            return list(above[: level + 1]), True
    return list(above[:_UNROOTED]), False


def state(directory: str) -> tuple[int, ...]:
    """Numbers that change when files around a directory come or go, and every few seconds: a key for answers."""
    return (*_now(), *(_changed(str(place)) for place in _places(directory)))


def _now() -> tuple[int, int]:
    return _CALLS[0], int(time.monotonic() // _FRESH)


def texts(directory: str) -> Iterator[tuple[Path, str]]:
    """Small texts that may speak of the scripts of a directory: those of its repository; without one, those of the
    directory and the one above."""
    for place in _places(directory):
        for name, text in _of(str(place), (*_now(), _changed(str(place)))):
            yield place / name, text


def configurations(directory: str) -> Iterator[tuple[Path, str]]:
    """The small YAML files in the same places."""
    for place in _places(directory):
        for name in names_in(str(place)):
            if name.endswith((".yaml", ".yml")):
                yield place / name, text_of(str(place / name))


def whole(root: str, most: int) -> list[tuple[Path, str]] | None:
    """The small texts of a repository; None where it has more files than that."""
    files: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_OURS]
        note_listing(folder)
        files += [Path(folder, name) for name in names]
        if len(files) > most:
            return None
    return [(path, text_of(str(path))) for path in files]


_NOT_OURS = (".git", "node_modules", ".venv", "venv", "__pycache__")


def _places(directory: str) -> list[Path]:
    above, rooted = folders_above(os.path.join(directory, "script"))
    places = above if rooted else above[:2]
    tops = dict.fromkeys((places[-1], *places[1:2]))  # of the repository, and of a project in it
    beside = [one for top in tops for one in _beside(str(top), (*_now(), _changed(str(top))))]
    places = list(dict.fromkeys([*places, *beside, *(inner for place in beside for inner in _below(place))]))
    for place in (*tops, *places):
        note_listing(str(place))
    return places


@lru_cache(maxsize=32)
def _beside(top: str, _state: tuple[int, ...]) -> tuple[Path, ...]:
    """Those of the usual directories that are there; a new one changes the listing above it."""
    return tuple(Path(top, name) for name in _BESIDE if os.path.isdir(os.path.join(top, name)))


def _below(place: Path) -> list[Path]:
    """The directories of a directory, such as `scripts/slurm`."""
    note_listing(str(place))
    return list(_inner(str(place), (*_now(), _changed(str(place)))))


@lru_cache(maxsize=64)
def _inner(place: str, state: tuple[int, ...]) -> tuple[Path, ...]:
    names = (name for name in _names(place, state) if "." not in name)
    return tuple(Path(place, name) for name in names if os.path.isdir(os.path.join(place, name)))[:_BELOW]


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0


def is_document(path: Path) -> bool:
    return path.suffix in _DOCUMENTS or path.name.upper() == "README"


@lru_cache(maxsize=64)
def _of(place: str, _state: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """The texts of one directory, those for readers first, and the jobs last."""
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return ()
    wanted = [name for name in names if name in _NAMES or name.endswith(_SUFFIXES) or name.upper() == "README"]
    wanted = [name for name in wanted if not name.startswith("test_") and not name.endswith("_test.py")]
    first = sorted(wanted, key=lambda name: (name.endswith(_JOBS), not name.upper().startswith("README")))[:_FILES]
    return tuple((name, text_of(os.path.join(place, name))) for name in first)


def text_of(path: str) -> str:
    """A small text; empty where it is large or cannot be read."""
    try:
        if os.path.isfile(path) and os.stat(path).st_size < _LARGEST:
            return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        pass
    return ""
