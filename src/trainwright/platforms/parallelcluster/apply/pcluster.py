"""The `pcluster` command: pinned, in a virtual environment of its own that is made once and kept in the user's cache
folder. It needs old libraries, so it is never imported."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.catalog.versions import version_set
from trainwright.errors import UserError
from trainwright.platforms.apply.answers import Answer
from trainwright.platforms.apply.steps import BuildFailed

PINS = Path(__file__).parents[1] / "data" / "pcluster.txt"
STAMP = "trainwright-pins.txt"
NO_NODE = "pcluster needs Node.js, which is not installed"


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "trainwright" / f"pcluster-{version_set('default').parallelcluster}"


def is_installed() -> bool:
    """Whether it is there with the present pins. The stamp is written last: an installation that was ended has none."""
    stamp = cache_folder() / STAMP
    return stamp.is_file() and stamp.read_text() == PINS.read_text()


def program(say: Callable[[str], None]) -> Path:
    """The pinned `pcluster`, installed now if it is not there yet. Two runs at once wait for each other."""
    if not shutil.which("node"):
        raise UserError(NO_NODE, fix="install nodejs 18 or newer")
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed():
            say(f"installing pcluster {version_set('default').parallelcluster} in {folder}: about two minutes, once")
            _install(folder)
            (folder / STAMP).write_text(PINS.read_text())
    return folder / "bin" / "pcluster"


def ability() -> Iterator[Answer]:
    """Whether `pcluster` can run here: better known before the file systems are made than after."""
    version = version_set("default").parallelcluster
    if not shutil.which("node"):
        yield Answer("pcluster", "fail", f"{NO_NODE}: install nodejs 18 or newer")
    elif is_installed():
        yield Answer("pcluster", "pass", f"{version}, in {cache_folder()}")
    else:
        yield Answer("pcluster", "pass", f"{version} will be installed in {cache_folder()}: about two minutes, once")


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_CONSTRAINT")}
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "install", "-q", "-r", str(PINS)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=clean)
        if done.returncode:
            raise UserError(
                f"pcluster cannot be installed: {done.stderr.strip()[-600:]}",
                where=str(folder),
                fix="check that pip can reach its package index",
            )


@dataclass(frozen=True)
class Pcluster:
    """The verbs of pcluster that change a cluster. They return when CloudFormation has begun."""

    region: str
    say: Callable[[str], None] = lambda words: None

    def ready(self) -> None:
        program(self.say)

    def create(self, name: str, config: str) -> None:
        self._with_config("create-cluster", name, config)

    def update(self, name: str, config: str) -> None:
        self._with_config("update-cluster", name, config)

    def delete(self, name: str) -> None:
        self._run(["delete-cluster", "--region", self.region, "--cluster-name", name])

    def fleet(self, name: str, status: str) -> None:
        """Ask for START_REQUESTED or STOP_REQUESTED of the compute nodes."""
        self._run(["update-compute-fleet", "--region", self.region, "--cluster-name", name, "--status", status])

    def _with_config(self, verb: str, name: str, config: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cluster.yaml"
            path.write_text(config, encoding="utf-8")
            self._run([verb, "--region", self.region, "--cluster-name", name, "--cluster-configuration", str(path)])

    def _run(self, words: Sequence[str]) -> dict[str, Any]:
        done = subprocess.run([str(program(self.say)), *words], capture_output=True, text=True)
        answer = _json(done.stdout)
        if done.returncode:
            raise _refused(words[0], answer, done.stdout + done.stderr)
        return answer


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _refused(verb: str, answer: dict[str, Any], text: str) -> BuildFailed:
    errors = [e for e in answer.get("configurationValidationErrors", []) if e.get("level") == "ERROR"]
    reasons = "; ".join(str(e.get("message")) for e in errors) or str(answer.get("message") or text.strip()[-600:])
    return BuildFailed(f"pcluster {verb} was refused: {reasons}", fix="change the spec, then run `up` again")
