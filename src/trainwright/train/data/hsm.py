"""`data preload` and `data release`: brings the files of a Lustre file system in from its bucket, or sets their disk
space free, many at a time. On other file systems, preload reads every file once, which fills the caches on the way."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.train.data.progress import Progress

AT_ONCE = 64  # files per call of lfs
POLL = 0.5  # seconds between two looks at a state
_CHECKSUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


@dataclass(frozen=True, slots=True)
class HsmState:
    """What Lustre says of one file: in the archive, changed since, or released from the disks."""

    archived: bool
    dirty: bool
    released: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """What a preload or a release did. `problems`: file -> why it is not as asked."""

    files: int
    bytes: int
    already: int
    problems: dict[str, str]


def list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder), fix="check the path on this node")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_lustre(folder: Path) -> bool:
    """Whether the client's own tool takes the folder for Lustre."""
    if shutil.which("lfs") is None:
        return False
    return subprocess.run(["lfs", "getname", str(folder)], capture_output=True, check=False).returncode == 0


def states(paths: Sequence[Path]) -> dict[Path, HsmState]:
    """`lfs hsm_state`: `/fsx/a: (0x0000000d) released exists archived, archive_id:1`."""
    files: dict[Path, HsmState] = {}
    for group in _groups(paths):
        asked = set(group)
        for line in _lfs("hsm_state", group).splitlines():
            name, _, words = line.rpartition(": (")
            if name and Path(name) in asked:  # a name with a line break must not speak for another file
                flags = words.partition(")")[2].replace(",", " ").split()
                files[Path(name)] = HsmState("archived" in flags, "dirty" in flags, "released" in flags)
    return files


def preload(folder: Path, workers: int, checksums: dict[str, str], quiet: bool = False) -> Moved:
    """Every file's bytes on the file system's own disks, then read and (where a checksum is known) compared."""
    paths = list_files(folder)
    progress = Progress(sum(path.stat().st_size for path in paths), "B", "preload")
    already = len(paths)
    if is_lustre(folder):
        released = [path for path, state in states(paths).items() if state.released]
        already -= len(released)
        # Asking for one that is on its way changes nothing, so a run that was killed is simply repeated.
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(lambda group: _lfs("hsm_restore", group), _groups(released)):
                pass
        _wait(released, lambda state: not state.released, quiet)
    there = {str(path.relative_to(folder)) for path in paths}
    missing = [name for name in checksums if name not in there]
    problems = {str(folder / name): "named by the checksums, and not there" for name in missing}
    with ThreadPoolExecutor(workers) as pool:
        for path, problem in zip(paths, pool.map(lambda p: _read(p, folder, checksums, progress), paths), strict=True):
            if problem:
                problems[str(path)] = problem
    if not quiet:
        progress.close()
    return Moved(len(paths) + len(missing), sum(path.stat().st_size for path in paths), already, problems)


def release(folder: Path, workers: int, quiet: bool = False) -> Moved:
    """Set the disk space of every archived, unchanged file free; its content stays in the bucket."""
    if not is_lustre(folder):
        raise UserError("not a Lustre file system", where=str(folder), fix="only Lustre keeps files in a bucket")
    paths = list_files(folder)
    files = states(paths)
    problems = {str(path): _why_not(state) for path, state in files.items() if _why_not(state)}
    problems |= {str(path): "`lfs hsm_state` says nothing of it" for path in paths if path not in files}
    todo = [path for path, state in files.items() if not _why_not(state) and not state.released]
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda group: _lfs("hsm_release", group), _groups(todo)):
            pass
    _wait(todo, lambda state: state.released, quiet)
    already = sum(state.released for state in files.values())
    return Moved(len(paths), sum(path.stat().st_size for path in todo), already, problems)


def set_stripes(folder: Path, count: int) -> None:
    """New files of the folder are spread over `count` disks (-1: all)."""
    if not is_lustre(folder):
        raise UserError("not a Lustre file system", where=str(folder), fix="leave --stripes out")
    _lfs("setstripe", [folder], "-c", str(count))


def read_checksums(path: Path | None) -> dict[str, str]:
    """A file as `sha256sum` writes it: digest, two blanks, name relative to the folder."""
    if path is None:
        return {}
    checksums = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = _CHECKSUM.fullmatch(line)
        if parts is None:
            fix = "each line is 64 hexadecimal digits, two blanks and a name relative to the folder"
            raise UserError(f"{line[:80]!r} is no checksum of sha256sum", where=f"{path}:{number}", fix=fix)
        checksums[parts[2].removeprefix("./")] = parts[1].lower()
    return checksums


def _why_not(state: HsmState) -> str:
    if not state.archived:
        return "not in the bucket yet: export it first"
    return "changed since it was exported" if state.dirty else ""


def _read(path: Path, folder: Path, checksums: dict[str, str], progress: Progress) -> str:
    """Read a whole file; what is wrong with it, or nothing."""
    wanted = checksums.get(str(path.relative_to(folder)), "")
    digest, length = hashlib.sha256(), 0
    try:
        with path.open("rb") as handle:
            while block := handle.read(4 << 20):
                length += len(block)
                if wanted:
                    digest.update(block)
                progress.add(len(block))
        if length != path.stat().st_size:
            return f"{length} bytes read of {path.stat().st_size}"
    except OSError as error:
        return error.strerror or str(error)
    return "the content differs from its checksum" if wanted and digest.hexdigest() != wanted else ""


def _wait(paths: Sequence[Path], done: Callable[[HsmState], bool], quiet: bool) -> None:
    """Until Lustre's coordinator has worked off every file; it gives up when nothing moves for ten minutes."""
    waiting, deadline = list(paths), time.monotonic() + 600
    progress = Progress(len(waiting), "files", "lustre")
    while waiting:
        now = states(waiting)
        left = [path for path in waiting if path not in now or not done(now[path])]
        if len(left) < len(waiting):
            deadline = time.monotonic() + 600
        elif time.monotonic() > deadline:
            raise UserError(f"Lustre has not moved {len(left)} files for ten minutes", where=str(left[0]),
                            fix="look at `lctl get_param mdt.*.hsm.actions`, and run the command again")  # fmt: skip
        progress.add(len(waiting) - len(left))
        waiting = left
        if waiting:
            time.sleep(POLL)
    if paths and not quiet:
        progress.close()


def _groups(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    return (paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE))


def _lfs(verb: str, paths: Sequence[Path], *options: str) -> str:
    command = ["lfs", verb, *options, *(str(path) for path in paths)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        raise UserError(f"`lfs {verb}` failed: {done.stderr.strip()}", where=str(paths[0]))
    return done.stdout
