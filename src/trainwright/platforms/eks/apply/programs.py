"""The programs that EKS needs beside AWS: eksctl, kubectl, helm. One is started, looked at while it runs, and its end
decides; a run of ours that is ended leaves it to finish or not, and the next one asks the cluster where it stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from trainwright.errors import UserError
from trainwright.platforms.apply.steps import BuildFailed, Step

TAIL = 800  # characters of an output that are shown
WHERE = {
    "kubectl": "https://kubernetes.io/docs/tasks/tools",
    "helm": "https://helm.sh/docs/intro/install",
    "eksctl": "https://eksctl.io/installation",
    "git": "https://git-scm.com",
}


class Running(Protocol):
    """A program that was started."""

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        ...

    def output(self) -> str: ...

    def errors(self) -> str: ...


class Programs(Protocol):
    def has(self, name: str) -> bool: ...

    def start(self, words: Sequence[str], text: str = "", environment: Mapping[str, str] | None = None) -> Running: ...


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def poll(self) -> int | None:
        return self.process.poll()

    def output(self) -> str:
        return _all(self.out)

    def errors(self) -> str:
        return _all(self.err)


class RealPrograms:
    """Those on this machine's path."""

    def has(self, name: str) -> bool:
        return shutil.which(name) is not None

    def start(self, words: Sequence[str], text: str = "", environment: Mapping[str, str] | None = None) -> Running:
        given, out, err = _scratch(), _scratch(), _scratch()
        given.write(text.encode())
        given.seek(0)
        process = subprocess.Popen(
            list(words), stdin=given, stdout=out, stderr=err, env={**os.environ, **(environment or {})}
        )
        given.close()
        return _Child(process, out, err)


def _scratch() -> IO[bytes]:
    return tempfile.TemporaryFile()  # it lives as long as the program does


def _all(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def require(programs: Programs, names: Sequence[str], why: str) -> None:
    """Refuse where one of the programs is missing, before anything is made or removed."""
    missing = [name for name in names if not programs.has(name)]
    if missing:
        places = ", ".join(f"{name} ({WHERE[name]})" for name in missing)
        raise UserError(f"{' and '.join(missing)} not on this machine's path: {why}", fix=f"install {places}")


def answer(programs: Programs, words: Sequence[str], kubeconfig: Path) -> str:
    """What a short program prints; it is waited for."""
    running = programs.start(words, environment={"KUBECONFIG": str(kubeconfig)})
    if isinstance(running, _Child):
        running.process.wait()
    if running.poll():
        raise BuildFailed(f"{' '.join(words[:3])} failed: {running.errors().strip()[-TAIL:]}")
    return running.output()


@dataclass
class Command(Step):
    """One program that may be run again at any time: what is there already it leaves as it is."""

    programs: Programs = field(kw_only=True)
    words: Callable[[], Sequence[str]] = field(kw_only=True)
    text: Callable[[], str] = field(kw_only=True, default=lambda: "")
    kubeconfig: Path | None = field(kw_only=True, default=None)
    done: str = field(kw_only=True, default="ready")
    _running: Running | None = None

    def advance(self) -> bool:
        if self._running is None:
            environment = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
            self._running = self.programs.start(self.words(), self.text(), environment)
            self.now("changing")
        status = self._running.poll()
        if status is None:
            return False
        if status:
            words = " ".join(self.words()[:3])
            raise BuildFailed(
                f"{words} failed with status {status}: {self._running.errors().strip()[-TAIL:]}",
                fix="remove the cause, then run the same command again: it goes on from here",
            )
        self.now(self.done)
        return True
