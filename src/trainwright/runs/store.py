"""A run is a folder: the spec, the script, the environment with its reasons, the code, and the results.

It is made before anything is submitted, so that a job that fails at once still leaves everything needed to see why.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.files import write_whole
from trainwright.home import home
from trainwright.schedulers.base import JobIdentity, JobStatus

REMEMBER_EVERY = 10.0  # seconds


@dataclass(frozen=True)
class Run:
    """`run.json`: how to find a run's job again, from any terminal."""

    name: str
    job: str
    scheduler: str
    platform: str = ""
    cluster: str = ""
    host: str = ""  # ssh destination, where the scheduler is not on this machine
    remote: str = ""  # the run folder on that side
    job_id: str = ""
    start: str = ""  # which start of the cluster gave that id
    queue: str = ""
    nodes: int = 1
    ranks: int = 1
    steps: int | None = None
    created: float = 0.0
    submitted: float | None = None
    continues: str = ""  # the run whose checkpoints this one started from
    at: dict[str, str] = dataclasses.field(default_factory=dict)  # what finds the scheduler again: namespace, region…

    @property
    def identity(self) -> JobIdentity:
        """What names this run's job at its scheduler, and no other job."""
        return JobIdentity(self.job_id, self.name, self.start, self.submitted)

    @property
    def folder(self) -> Path:
        return runs_folder() / self.name

    @property
    def where(self) -> str:
        """The run folder as the job sees it."""
        return self.remote or str(self.folder)


@dataclass(frozen=True)
class LastSeen:
    """`last_seen.json`: what the scheduler last said about a run, and when."""

    status: JobStatus
    time: float


def last_seen(run: Run) -> LastSeen | None:
    try:
        data = json.loads((run.folder / "last_seen.json").read_text())
    except FileNotFoundError:
        return None
    return LastSeen(JobStatus(**data["status"]), data["time"])


def remember(run: Run, status: JobStatus, seen: LastSeen | None) -> None:
    """Keep a status for when the scheduler no longer answers; an unchanged one is written again only now and then."""
    now = time.time()
    if seen and seen.status == status and now - seen.time < REMEMBER_EVERY:
        return
    text = json.dumps({"time": now, "status": dataclasses.asdict(status)}, indent=1) + "\n"
    write_whole(run.folder / "last_seen.json", text)


def runs_folder() -> Path:
    return home() / "runs"


def new_name(job: str) -> str:
    """Sorts by time, and two submissions in one second still differ. It is the name of a folder: no path in it."""
    job = re.sub(r"[^A-Za-z0-9._-]+", "-", job).lstrip(".-") or "job"
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def write(run: Run) -> None:
    write_whole(run.folder / "run.json", json.dumps(dataclasses.asdict(run), indent=1) + "\n")


def read(name: str) -> Run | None:
    try:
        return Run(**json.loads((runs_folder() / name / "run.json").read_text()))
    except FileNotFoundError:
        return None


def all_runs() -> Iterator[Run]:
    """Every run of this machine, the newest first."""
    paths = runs_folder().glob("*/run.json") if runs_folder().is_dir() else ()
    runs = [Run(**json.loads(path.read_text())) for path in paths]
    return iter(sorted(runs, key=lambda run: run.created, reverse=True))


def find(word: str) -> Run:
    """The run a user means: its name, the start of it, its job's id, or `last`; of several the newest."""
    return matching(word)[0]


def matching(word: str) -> list[Run]:
    """Every run that a word fits, the newest first; at least one."""
    if not word:  # such as a variable of the user's shell that is not set
        raise UserError("no run is named", fix="name one of `trainwright runs`, or `last`")
    runs = list(all_runs())
    if word == "last" and runs:
        return runs[:1]
    exact = [run for run in runs if word == run.name] or [run for run in runs if word == run.job_id]
    if fitting := exact or [run for run in runs if run.name.startswith(word)]:
        return fitting
    names = [run.name for run in runs]
    hint = did_you_mean(word, names) or "`trainwright runs` lists them"
    why = "" if runs else ": nothing was submitted from this machine yet"
    raise UserError(f"there is no run {word!r}{why}", fix=hint)
