"""Running a scheduler's commands where it is: on this machine, inside a local cluster's head, or over ssh.

The schedulers know one `Shell`; whether a command crosses a network is decided here and nowhere else.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.home import home

SSH_FAILED = 255  # the exit status of ssh itself: the connection failed, not the command


class Unreachable(UserError):
    """A cluster does not answer, so nothing is known about its jobs: an answer (status 1), not a mistake of usage."""

    status = 1


class Gone(Unreachable):
    """The cluster that ran the jobs was taken down: they run no more, whatever they left."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """A place to run commands: `host` is an ssh destination, `prefix` is what enters a namespace on this machine."""

    host: str = ""
    prefix: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    ssh_options: tuple[str, ...] = ()
    patience: float = 120.0  # seconds that a command may take

    @property
    def remote(self) -> bool:
        return bool(self.host)

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command as this machine has to run it."""
        if not self.remote:
            return [*self.prefix, *command]
        assigned = [f"{key}={shlex.quote(value)}" for key, value in self.env]
        words = " ".join([*assigned, *(shlex.quote(word) for word in command)])
        # After `--` nothing is an option any more, neither the host nor the command.
        return ["ssh", *_ssh_defaults(), *_own_options(self.host), *self.ssh_options, "--", self.host, words]

    def environment(self) -> dict[str, str]:
        """Of the command as this machine runs it; what is meant for a remote command travels in its words."""
        return dict(os.environ) if self.remote else {**os.environ, **dict(self.env)}

    def run(self, command: Sequence[str], text: str = "", timeout: float | None = None) -> Done:
        done = self._run(command, text.encode(), self.patience if timeout is None else timeout)
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def output(self, command: Sequence[str], text: str = "") -> str:
        """What the command printed; a command that fails is the user's to know about."""
        done = self.run(command, text)
        if done.code != 0:
            where = f"ssh {self.host}" if self.remote else ""
            kind = Unreachable if self.remote and done.code == SSH_FAILED else UserError
            raise kind(f"`{command[0]}` failed: {done.err.strip() or done.out.strip()}", where=where)
        return done.out

    def read(self, path: str | Path, offset: int = 0) -> bytes:
        """A file's bytes from `offset` on; nothing where it does not exist yet."""
        if not self.remote:
            try:
                with open(path, "rb") as handle:
                    handle.seek(offset)
                    return handle.read()
            except FileNotFoundError:
                return b""
        done = self._run(["tail", "-c", f"+{offset + 1}", str(path)], b"", 60.0)
        return done.stdout if done.returncode == 0 else b""

    def size(self, path: str | Path) -> int:
        """A file's length in bytes; 0 where it does not exist."""
        if not self.remote:
            return os.path.getsize(path) if os.path.exists(path) else 0
        done = self.run(["stat", "-c", "%s", str(path)])
        return int(done.out) if done.code == 0 else 0

    def listing(self, folder: str | Path) -> list[str]:
        """The names of the files in a folder."""
        if not self.remote:
            return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        done = self.run(["ls", "-1", str(folder)])
        return done.out.split() if done.code == 0 else []

    def send(self, folder: Path, to: str) -> None:
        """Copy a folder's content to where the nodes see it; nothing to do where they see it in place."""
        if not self.remote:
            if Path(to) != folder:
                shutil.copytree(folder, to)
                Path(to).chmod(0o700)
            return
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, arcname=".")
        where = shlex.quote(to)
        # For its owner alone: a run folder holds what the user's environment holds.
        unpack = f"umask 077 && mkdir -p {where} && tar -xzf - -C {where}"
        done = self._run(["sh", "-c", unpack], packed.getvalue(), 300.0)
        if done.returncode != 0:
            raise UserError(f"cannot copy the run to {self.host}:{to}: {done.stderr.decode().strip()}")

    def _run(self, command: Sequence[str], data: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                self.argv(command), input=data, capture_output=True, timeout=timeout, env=self.environment()
            )
        except FileNotFoundError:
            raise UserError(
                f"{self.argv(command)[0]!r} is not on this machine",
                fix="run this on the head node, or name it: --host user@head",
            ) from None
        except subprocess.TimeoutExpired:
            raise Unreachable(f"`{command[0]}` did not answer in {timeout:.0f} s", where=self.host) from None


def own_config(host: str) -> Path:
    """The ssh configuration of a host that a platform of ours describes: a head node that only AWS knows the way to."""
    return home() / "ssh" / f"{host}.config"


def _own_options(host: str) -> list[str]:
    known = own_config(host) if "/" not in host else None
    return ["-F", str(known)] if known is not None and known.is_file() else []


def _ssh_defaults() -> list[str]:
    # One connection serves the commands of the next minute: each further command costs milliseconds.
    control = Path(tempfile.gettempdir()) / f"tw-ssh-{os.getuid()}-%C"
    return [
        "-o",
        "BatchMode=yes",
        "-o",
        "ControlMaster=auto",
        "-o",
        f"ControlPath={control}",
        "-o",
        "ControlPersist=60",
    ]
