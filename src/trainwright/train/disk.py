"""A full disk: how it is recognised, what is said about it, and how what was written for nothing is removed."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainwright.errors import UserError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
CACHE_FULL = "free the disk, or set XDG_CACHE_HOME to a folder on another one"
FIX = "free the disk, then give the same command again"


class DiskFull(UserError):
    """There is no room for a file, which needs so much."""

    needed = ""


def disk_full(error: BaseException) -> bool:
    """Whether a full disk caused this error, on any rank and at any depth of the chain."""
    if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in FULL):
        return True
    failures = getattr(error, "failures", None) or {}
    inner = [f[0] for f in failures.values()] + [error.__cause__, error.__context__]
    return any(disk_full(e) for e in inner if e is not None)


def no_space(path: Path | str, needed: str = "", fix: str = FIX, what: str = "") -> DiskFull:
    """The error for a path: what is needed, and what is free there now."""
    free = f"{amount(free_bytes(Path(path)))} are free"
    numbers = f"it needs {needed}, {free}" if needed else free
    error = DiskFull(f"no space left{what}: {numbers}", where=str(path), fix=fix)
    error.needed = needed
    return error


def free_bytes(path: Path) -> int:
    """Bytes that can still be written at a path, which need not exist."""
    path = path.absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())).free


def amount(size: int) -> str:
    return f"{size / 1e9:,.3f} GB" if size >= 1_000_000 else f"{size:,} bytes"


def require_space(path: Path, needed: int, fix: str = FIX) -> None:
    """Before anything is written."""
    if free_bytes(path) < needed:
        raise no_space(path, amount(needed), fix)


@contextlib.contextmanager
def removed_on_error(
    *written: Path, where: Path, needed: int | None = None, fix: str = FIX, what: str = ""
) -> Iterator[None]:
    """Remove these files and folders when an error ends the work, so that they do not keep a disk full; a full disk is
    then reported for `where`. Where `needed` is not known, it is more than was written."""
    try:
        yield
    except BaseException as error:
        had = sum(map(_size, written))
        for path in written:
            remove(path)
        if disk_full(error):
            more = f"more than {amount(had)}" if had else error.needed if isinstance(error, DiskFull) else ""
            raise no_space(where, more if needed is None else amount(needed), fix, what) from error
        raise


@contextlib.contextmanager
def new_folder(folder: Path, needed: int) -> Iterator[Path]:
    """A folder to write `needed` bytes into; it appears under its name when it is complete."""
    if folder.exists():
        raise UserError(f"{folder} exists already", fix="name a new folder")
    beside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)
    fix = "free the disk, or name a folder on another one"
    require_space(folder, needed, fix)
    with removed_on_error(beside, where=folder, needed=needed, fix=fix):
        beside.mkdir(parents=True)
        yield beside
        beside.rename(folder)


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(p.stat().st_size for p in files if p.is_file())
    return 0


def append_line(path: Path, line: str) -> None:
    """Append a line, or nothing: half a line would spoil the next one as well."""
    content = memoryview(line.encode() + b"\n")
    with removed_on_error(where=path, needed=len(content)), path.open("ab", buffering=0) as out:
        end = out.seek(0, 2)
        try:
            while content:
                content = content[out.write(content) :]
        except OSError:
            out.truncate(end)
            raise
