"""What a local cluster leaves on this machine: one folder, and processes that carry its mark.

The record is written before the first process starts, and every process inherits the mark in its environment. So
whatever a crash of `up` left half done can be found and removed: namespaces and mounts live only as long as the
marked processes that hold them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.files import write_whole
from trainwright.home import home
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.schedulers.environments import environments

MARK = "TRAINWRIGHT_LOCAL_CLUSTER"
ROLE = "TRAINWRIGHT_LOCAL_ROLE"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A unix socket's path has 107 characters; the longest Slurm makes under here needs about 60 of them.
LONGEST_FOLDER = 45


@dataclass(frozen=True)
class Record:
    """The one file that says what a cluster is; its identity is the mark its processes carry."""

    cluster: LocalCluster
    identity: str
    namespaces: bool
    created: float
    ports: tuple[int, ...] = ()
    made: tuple[str, ...] = ()  # folders made for mounts to lie on, outermost first
    ready: bool = False

    @property
    def folder(self) -> Path:
        return folder_of(self.cluster.name)

    @property
    def short(self) -> Path:
        """The folder by a path short enough for unix sockets: itself, or a link in the temporary folder."""
        if len(str(self.folder)) <= LONGEST_FOLDER:
            return self.folder
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        return Path(tempfile.gettempdir()) / f"tw-{digest}"

    @property
    def conf(self) -> Path:
        return self.short / "etc" / "slurm.conf"

    def log(self, role: str) -> Path:
        return self.short / "log" / f"{role}.log"


def clusters_folder() -> Path:
    return home() / "clusters"


def folder_of(name: str) -> Path:
    return clusters_folder() / name


def lock_file(name: str) -> Path:
    return clusters_folder() / f".{name}.lock"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one `up` or `down` of a cluster at a time."""
    clusters_folder().mkdir(parents=True, exist_ok=True)
    with lock_file(name).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"cluster {name!r} is being started or stopped by another command", fix="wait for it, then try again"
            ) from None
        yield


def new_record(cluster: LocalCluster, namespaces: bool, ports: tuple[int, ...]) -> Record:
    record = Record(cluster, uuid.uuid4().hex, namespaces, time.time(), ports, _missing_folders(cluster))
    record.folder.mkdir(parents=True)
    write(record)
    for folder, mount in cluster.mounts:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(mount).mkdir(parents=True, exist_ok=True)
    if record.short != record.folder:
        record.short.unlink(missing_ok=True)
        record.short.symlink_to(record.folder)
    for part in ("etc", "log", "run", "spool/ctld", "dev"):
        (record.folder / part).mkdir(parents=True)
    return record


def _missing_folders(cluster: LocalCluster) -> tuple[str, ...]:
    """What has to be made, and later taken away, for the cluster's mounts to lie on."""
    wanted = [path for _, mount in cluster.mounts for path in [*reversed(Path(mount).parents), Path(mount)]]
    return tuple(dict.fromkeys(str(path) for path in wanted if not path.exists()))


def write(record: Record) -> None:
    write_whole(record.folder / "cluster.json", json.dumps(dataclasses.asdict(record), indent=1) + "\n")


def read(name: str) -> Record | None:
    """The record of a cluster, or nothing where none was ever started (or `down` removed it)."""
    try:
        data = json.loads((folder_of(name) / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    plain = data.pop("cluster")
    queues = tuple(LocalQueue(**queue) for queue in plain.pop("queues"))
    mounts = tuple((folder, mount) for folder, mount in plain.pop("mounts"))
    settings = tuple((key, value) for key, value in plain.pop("settings"))
    cluster = LocalCluster(queues=queues, mounts=mounts, settings=settings, **plain)
    return Record(cluster=cluster, ports=tuple(data.pop("ports")), made=tuple(data.pop("made")), **data)


def require(name: str) -> Record:
    record = read(name)
    if record is None:
        others = ", ".join(names())
        there = f" (there is: {others})" if others else ""
        raise UserError(f"no local cluster {name!r} on this machine{there}", fix="start it with `trainwright up SPEC`")
    return record


def names() -> list[str]:
    if not clusters_folder().is_dir():
        return []
    return sorted(path.parent.name for path in clusters_folder().glob("*/cluster.json"))


def environment(record: Record, role: str) -> dict[str, str]:
    """What every daemon of the cluster starts with: little more than a path and the mark."""
    keep = {
        key: os.environ[key]
        for key in ("HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TRAINWRIGHT_HOME")
        if key in os.environ
    }
    return {**keep, "PATH": PATH, "SLURM_CONF": str(record.conf), MARK: record.identity, ROLE: role}


def processes(record: Record) -> dict[int, str]:
    """Every live process that carries the cluster's mark, with its role; a job's are known by their SLURM_CONF."""
    mark = f"{MARK}={record.identity}".encode()
    job = f"SLURM_CONF={record.conf}".encode()
    roles: dict[int, str] = {}
    for pid, words in environments():
        if mark in words:
            roles[pid] = _value(words, ROLE)
        elif job in words and _value(words, "SLURM_JOB_ID"):
            roles[pid] = f"job-{_value(words, 'SLURMD_NODENAME')}"
    return roles


def job_processes(record: Record) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """The processes of jobs, each with the job's id, its name and the node."""
    conf = f"SLURM_CONF={record.conf}".encode()
    for pid, words in environments():
        job = _value(words, "SLURM_JOB_ID") if conf in words else ""
        if job:
            yield pid, (job, _value(words, "SLURM_JOB_NAME"), _value(words, "SLURMD_NODENAME"))


def _value(words: list[bytes], name: str) -> str:
    start = f"{name}=".encode()
    return next((word[len(start) :].decode() for word in words if word.startswith(start)), "")


def pid_of(record: Record, role: str) -> int | None:
    """The process that plays a role: the oldest with that mark, since what it starts inherits the mark."""
    pids = [pid for pid, played in processes(record).items() if played == role]
    return min(pids, key=_started, default=None)


def kill(
    record: Record, chosen: Callable[[str], bool], sign: signal.Signals = signal.SIGKILL, seconds: float = 10.0
) -> None:
    """End every process whose role is chosen, and wait until none is left."""
    deadline = time.monotonic() + seconds
    while pids := [pid for pid, role in processes(record).items() if chosen(role)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        if time.monotonic() > deadline:
            raise UserError(
                f"processes {pids} of cluster {record.cluster.name!r} do not end", fix="look at them with `ps`"
            )
        time.sleep(0.02)


def remove(record: Record) -> None:
    """Take the folder (and the short link to it) away; the record goes last, so a crash here can be repeated."""
    for path in record.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    if record.short != record.folder:
        record.short.unlink(missing_ok=True)
    for made in reversed(record.made):
        if not _used_elsewhere(record, made):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(made)
    shutil.rmtree(record.folder)


def _used_elsewhere(record: Record, folder: str) -> bool:
    others = [read(name) for name in names() if name != record.cluster.name]
    mounts = [mount for other in others if other for _, mount in other.cluster.mounts]
    return any(Path(mount).is_relative_to(folder) for mount in mounts)


def _started(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:
        return 1 << 62
