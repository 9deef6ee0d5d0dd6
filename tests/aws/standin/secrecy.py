"""Looks for secrets while commands run: values planted in the user's environment, the private key that `up` makes, the
database's password. They must be in no program's arguments, no file of ours, no object, and in nothing that AWS keeps
about the cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standin.outside import ROOT, Server

PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "PlantedSecretAccessKey0123456789abcdefgh",
    "AWS_SESSION_TOKEN": "PlantedSessionToken0123456789",
    "HF_TOKEN": "hf_PlantedTokenOfAUser0123456789",
    "WANDB_API_KEY": "0123456789plantedkeyofauser0123456789abc",
}


@dataclass
class Watcher:
    """Watches the commands of one server. `looks` counts how often it has looked."""

    server: Server
    folders: list[Path] = field(default_factory=list)  # beside the user's home: plans, run folders
    looks: int = 0
    programs: int = 0
    _passwords: list[str] = field(default_factory=list)
    _read: dict[Path, int] = field(default_factory=dict)

    @property
    def record(self) -> Path:
        """The programs that were started."""
        return self.server.folder / "programs"

    @property
    def home(self) -> Path:
        return Path(self.server.environment["TRAINWRIGHT_HOME"])

    def secrets(self) -> dict[str, str]:
        named = dict(PLANTED)
        for key in (self.home / "keys").glob("*") if (self.home / "keys").is_dir() else ():
            if key.suffix != ".pub":
                assert key.stat().st_mode & 0o777 == 0o600, key
                named[str(key)] = "".join(key.read_text().splitlines()[1:-1])[60:120]  # its secret half
        return named | {f"password {number}": word for number, word in enumerate(self._passwords)}

    def look(self, process: subprocess.Popen[str]) -> None:
        """At one moment of a command: what runs, what was started, and what is written by now."""
        self.looks += 1
        secrets = self.secrets()
        for place, text in (*_running(process.pid), *self._started(), *self._written()):
            for name, secret in secrets.items():
                assert secret not in text, f"{name} is in {place}"

    def _started(self) -> Iterator[tuple[str, str]]:
        if self.record.is_file():
            text = self.record.read_text()
            self.programs = len(text.splitlines())
            yield "the arguments of a program", text

    def _written(self) -> Iterator[tuple[str, str]]:
        """Files that are new or have grown since the last look, but the private keys themselves."""
        for folder in (self.home, *self.folders):
            for path in folder.rglob("*") if folder.is_dir() else ():
                with contextlib.suppress(OSError):  # one that was removed meanwhile
                    if not path.is_file() or path.parent == self.home / "keys":
                        continue
                    changed = path.stat().st_mtime_ns
                    if self._read.get(path) != changed:
                        self._read[path] = changed
                        yield str(path), path.read_text(errors="replace").replace("\n", "")

    def look_at_the_account(self, region: str) -> None:
        """What AWS keeps and shows to everyone who may describe it: stacks with their history, objects, instances."""
        manager = self.server.client("secretsmanager", region)
        self._passwords = [
            manager.get_secret_value(SecretId=row["ARN"])["SecretString"]
            for row in manager.list_secrets()["SecretList"]
        ]
        for place, text in _account(self.server, region):
            for name, secret in self.secrets().items():
                assert secret not in text, f"{name} is in {place}"


def _running(session: int) -> Iterator[tuple[str, str]]:
    """The arguments of every process of a command."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == session:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace")
                    yield f"the arguments of {words.split(chr(0))[0]}", words


def _account(server: Server, region: str) -> Iterator[tuple[str, str]]:
    stacks, s3, ec2 = (server.client(name, region) for name in ("cloudformation", "s3", "ec2"))
    for stack in stacks.describe_stacks()["Stacks"]:
        name = stack["StackName"]
        yield f"stack {name}", str(stack)
        yield f"the template of {name}", str(stacks.get_template(StackName=name)["TemplateBody"])
        yield f"the events of {name}", str(stacks.describe_stack_events(StackName=name)["StackEvents"])
    for bucket in s3.list_buckets()["Buckets"]:
        for row in s3.list_objects_v2(Bucket=bucket["Name"]).get("Contents", []):
            body: Any = s3.get_object(Bucket=bucket["Name"], Key=row["Key"])["Body"].read()
            yield f"object {row['Key']}", body.decode(errors="replace")
    yield "instances", str(ec2.describe_instances())
    yield "key pairs", str(ec2.describe_key_pairs())


def watch(server: Server) -> Watcher:
    """Plant secrets in the environment of the server's user, and look for them at every line of every command."""
    watcher = Watcher(server)
    audit = ROOT / "tests" / "aws" / "standin" / "audit"
    paths = f"{audit}{os.pathsep}{server.environment['PYTHONPATH']}"
    server.environment |= {**PLANTED, "PYTHONPATH": paths, "STANDIN_PROGRAMS": str(watcher.record)}
    server.look = watcher.look
    return watcher
