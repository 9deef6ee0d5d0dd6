"""The process scheduler: torchrun on this machine, detached from the terminal. It serves where there is no Slurm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.errors import UserError
from trainwright.home import home
from trainwright.schedulers.base import JobIdentity, JobStatus, Launch, Script, State, assert_honoured
from trainwright.schedulers.environments import environments
from trainwright.schedulers.logs import folder_logs
from trainwright.schedulers.render import render_template
from trainwright.schedulers.secret_values import from_shell
from trainwright.schedulers.shell import Shell


@dataclass(frozen=True)
class ProcessScheduler:
    """Jobs as process groups of this machine; a run folder is all that is kept about one."""

    python: str = sys.executable
    shell: Shell = field(default_factory=Shell)
    name = "process"
    cluster = ""
    interface = ""
    ships = True
    at: Mapping[str, str] = field(default_factory=dict)

    def render(self, launch: Launch) -> Script:
        assert_honoured(launch, self.name)
        assert launch.nodes == 1, "check: SPC003"
        return Script("job.sh", render_template("process.sh.j2", launch, python=self.python))

    def submit(self, launch: Launch, script: Script) -> JobIdentity:
        """Start the script in a session of its own: it goes on when this terminal closes."""
        environment = {**os.environ, **from_shell(launch), "TRAINWRIGHT_RUN": str(launch.folder)}
        with (launch.folder / "job.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", str(launch.folder / script.filename)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=launch.folder,
                start_new_session=True,
                env=environment,
            )
        (launch.folder / "pid").write_text(f"{process.pid} {_start_time(process.pid)}\n")
        return JobIdentity(launch.folder.name, launch.folder.name, submitted=time.time())

    def jobs(self) -> list[JobStatus]:
        """Every job of this machine that has not ended."""
        names = [path.parent.name for path in sorted((home() / "runs").glob("*/pid"))]
        statuses = (self.state(JobIdentity(name, name)) for name in names)
        return [status for status in statuses if not status.over]

    def state(self, job: JobIdentity) -> JobStatus:
        folder = home() / "runs" / job.id
        if not (folder / "pid").exists():
            return JobStatus(job.id, job.id, "unknown", self.name, reason="no run of that name was started here")
        state, code, reason = _outcome(folder)
        return JobStatus(job.id, job.id, state, self.name, nodes=1, exit_code=code, reason=reason)

    def logs(
        self, job: JobIdentity, folder: str, seen: dict[str, str], rank: int | None = None
    ) -> Iterator[tuple[str, str]]:
        return folder_logs(self.shell, folder, seen, rank)

    def cancel(self, job: JobIdentity) -> None:
        """End every process of the run, also those that left the group, and wait until none is there."""
        folder = home() / "runs" / job.id
        (folder / "cancelled").touch()
        for sign, patience in ((signal.SIGTERM, Launch.grace), (signal.SIGKILL, 10)):
            deadline = time.monotonic() + patience
            for pid in members(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
            while members(folder) and time.monotonic() < deadline:
                time.sleep(0.02)
        if left := members(folder):
            raise UserError(f"processes {left} of {job.id} do not end", fix="look at them with `ps`")

    def explain_pending(self, job: JobIdentity) -> str:
        return "a job on this machine starts at once"


def members(folder: Path) -> list[int]:
    """The live processes of a run: all carry its folder in their environment."""
    mark = f"TRAINWRIGHT_RUN={folder}".encode()
    return [pid for pid, words in environments() if mark in words]


def _outcome(folder: Path) -> tuple[State, int | None, str]:
    with contextlib.suppress(FileNotFoundError):
        code = int((folder / "exit").read_text())
        # A script that is ended still writes its status.
        ended: State = "cancelled" if (folder / "cancelled").exists() else "failed"
        return ("completed" if code == 0 else ended), code, ""
    pid, started = (folder / "pid").read_text().split()
    if (folder / "cancelled").exists():
        return ("completing" if members(folder) else "cancelled"), None, ""
    if _start_time(int(pid)) == started:
        return "running", None, ""
    return "failed", None, "its process is gone and left no exit status; the machine may have restarted"


def _start_time(pid: int) -> str:
    """When a process started, in the kernel's count: with the pid it names one process for good."""
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return "gone"
    return "gone" if parts[0] == "Z" else parts[19]
