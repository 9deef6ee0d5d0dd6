"""The one door to the machine under test: files below a root and the outputs of commands. Checks ask a `Node` and
nothing else, so a recording of a node (`--record`) gives the same answers anywhere (`--replay`). A pod that sees its
host's files below a folder names that folder (`--root`)."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

# A prolog starts with nearly no environment; these hold what EC2 images install.
PROGRAM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM_FOLDERS += ":/opt/amazon/efa/bin:/opt/aws/neuron/bin:/opt/slurm/bin"
COMMAND_SECONDS = 10.0
NOT_FOUND, TIMED_OUT = 127, 124  # as a shell reports them


@dataclasses.dataclass(frozen=True)
class Output:
    """What a command printed."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def complaint(self) -> str:
        """The first line of what went wrong, for a message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[0].strip() if lines else f"exit status {self.code}"


class Node:
    """This machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.name = os.environ.get("SLURMD_NODENAME") or os.environ.get("NODE_NAME") or socket.gethostname()
        self.time = time.time()
        self.packages = tuple(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
        self._outputs: dict[tuple[str, ...], Output] = {}
        self._path = f"{os.environ.get('PATH', '')}:{PROGRAM_FOLDERS}"

    def read(self, path: str) -> str | None:
        """A file's text without the last newline; None where there is none or it may not be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").rstrip("\n")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file that holds one number."""
        text = self.read(path)
        try:
            return int(text or "", 0)
        except ValueError:
            return None

    def paths(self, pattern: str) -> list[str]:
        """The paths that match a glob, in order."""
        prefix = str(self.root).rstrip("/")
        return sorted(found[len(prefix) :] for found in glob.glob(prefix + pattern))

    def exists(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def has(self, program: str) -> bool:
        return shutil.which(program, path=self._path) is not None

    def run(self, *command: str, seconds: float = COMMAND_SECONDS) -> Output:
        """Run a command that only reads; the same command runs once."""
        if command not in self._outputs:
            self._outputs[command] = self.execute(command, seconds)
        return self._outputs[command]

    def execute(self, command: Sequence[str], seconds: float) -> Output:
        """Run a command now. One that never returns (a dead mount, a stuck driver) must not hold the checks up."""
        program = shutil.which(command[0], path=self._path)
        if program is None:
            return Output(NOT_FOUND, err=f"{command[0]}: not installed")
        environment = {**os.environ, "PATH": self._path, "LC_ALL": "C"}
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return Output(TIMED_OUT, err=f"{command[0]} did not answer in {seconds:g} s")
        return Output(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def pause(self, seconds: float) -> None:
        """Wait for what is still starting."""
        time.sleep(seconds)

    def prefetch(self, commands: Iterable[Sequence[str]]) -> None:
        """Run several commands at once, so that a suite takes as long as its slowest one."""
        from threading import Thread

        wanted = [tuple(command) for command in commands if self.has(command[0])]
        threads = [Thread(target=self.run, args=command, daemon=True) for command in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class RecordedNode(Node):
    """A node as it once was, from one JSON file: the files that were read and the commands that were run."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        recording = json.loads(path.read_text())
        self.name, self.time, self.packages = recording["name"], recording["time"], tuple(recording["packages"])
        self._files: dict[str, str] = recording["files"]
        self._parts = [path.split("/") for path in self._files]
        self._programs = frozenset(recording["programs"])
        self._outputs = {tuple(row["command"]): Output(row["code"], row["out"], row["err"]) for row in recording["ran"]}

    def read(self, path: str) -> str | None:
        return self._files[path].rstrip("\n") if path in self._files else None

    def paths(self, pattern: str) -> list[str]:
        wanted = pattern.split("/")
        start = wanted[: next((i for i, part in enumerate(wanted) if set(part) & set("*?[")), len(wanted))]
        heads = {
            "/".join(parts[: len(wanted)])
            for parts in self._parts
            if len(parts) >= len(wanted) and parts[: len(start)] == start and all(map(fnmatchcase, parts, wanted))
        }
        return sorted(heads)

    def exists(self, path: str) -> bool:
        return path in self._files or any(one.startswith(f"{path}/") for one in self._files)

    def has(self, program: str) -> bool:
        return program in self._programs

    def execute(self, command: Sequence[str], seconds: float) -> Output:
        return Output(NOT_FOUND, err=f"`{' '.join(command)}` is not in the recording")

    def pause(self, seconds: float) -> None:
        """A recording does not change."""


class RecordingNode(Node):
    """This machine, remembering every answer for a recording."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(root)
        self._files: dict[str, str] = {}
        self._programs: set[str] = set()

    def has(self, program: str) -> bool:
        present = super().has(program)
        if present:
            self._programs.add(program)
        return present

    def read(self, path: str) -> str | None:
        text = super().read(path)
        if text is not None:
            self._files[path] = text
        return text

    def paths(self, pattern: str) -> list[str]:
        listed = super().paths(pattern)
        for path in listed:
            self._files.setdefault(path, "")
        return listed

    def exists(self, path: str) -> bool:
        present = super().exists(path)
        if present:
            self._files.setdefault(path, "")
        return present

    def save(self, path: Path) -> None:
        """Write the recording. A path that was only listed and has others below it is a folder, not an empty file."""
        from trainwright.files import write_text  # here: `versions --container` runs this file alone

        folders = {str(parent) for one in self._files for parent in Path(one).parents}
        files = {one: text for one, text in self._files.items() if one not in folders}
        ran = [
            {"command": list(command), "code": output.code, "out": output.out, "err": output.err}
            for command, output in self._outputs.items()
        ]
        recording = {
            "name": self.name,
            "time": self.time,
            "packages": self.packages,
            "programs": sorted(self._programs),
        }
        write_text(path, json.dumps({**recording, "files": files, "ran": ran}, indent=1) + "\n")
