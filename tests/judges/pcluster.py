"""ParallelCluster as a judge: `validate(path)` gives what its schema and validators say of a file, against the extended
moto. One server and one worker process serve a whole test session."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Message:
    """One thing ParallelCluster says about a file."""

    level: str
    validator_type: str
    text: str


class JudgeMissing(Exception):
    """The judge's virtual environment is not there and cannot be made."""


def environment(name: str) -> Path:
    """The `bin` folder of a judge's own virtual environment, made from judges/NAME.txt if it is missing. Two test runs
    at once wait for each other."""
    folder = ROOT / ".venvs" / name
    pins = ROOT / "judges" / f"{name}.txt"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "trainwright-pins.txt"
        if not stamp.is_file() or stamp.read_text() != pins.read_text():
            _install(folder, pins)
            stamp.write_text(pins.read_text())
    return folder / "bin"


def _install(folder: Path, pins: Path) -> None:
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin/pip"), "install", "-q", "-r", str(pins)],
    ]
    # A judge has pins of its own: those of the project, which make hands to pip, would contradict them.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_CONSTRAINT")}
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
        if done.returncode:
            raise JudgeMissing(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


@dataclass
class Processes:
    """The extended moto server and the worker; both end when their standard input closes."""

    endpoint: str
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    worker: subprocess.Popen[str] | None = None
    fresh: bool = True  # something was made since the worker last looked

    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PYTHON"))}
        return kept | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": tempfile.gettempdir(),
            "PATH": f"{environment('pcluster')}:{os.environ['PATH']}",
        }

    def ask(self, name: str, region: str, config: str) -> list[dict[str, str]]:
        if self.worker is None:
            # -P: this folder holds a pcluster.py of its own, which must not stand before the real package
            command = [str(environment("pcluster") / "python"), "-P", str(HERE / "pcluster_worker.py")]
            self.worker = _start(command, self.environ())
            self.started.append(self.worker)
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        request = {"name": name, "region": region, "config": config, "fresh": self.fresh}
        self.fresh = False
        self.worker.stdin.write(json.dumps(request) + "\n")
        self.worker.stdin.flush()
        answer = self.worker.stdout.readline()
        if not answer:
            raise RuntimeError("the ParallelCluster worker ended")
        messages: list[dict[str, str]] = json.loads(answer)
        return messages

    def stop(self) -> None:
        for process in reversed(self.started):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    )


_running: Processes | None = None


def processes() -> Processes:
    """The session's server and worker, started on first use and stopped when Python ends."""
    global _running
    if _running is None:
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "port"
            server = _start([sys.executable, str(HERE / "moto_extended.py"), str(ready)], dict(os.environ))
            deadline = time.monotonic() + 60
            while not ready.is_file():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the extended moto server did not start")
                time.sleep(0.05)
            _running = Processes(f"http://127.0.0.1:{ready.read_text()}", [server])
        atexit.register(_running.stop)
    return _running


def validate(path: Path | str, name: str = "judged") -> list[Message]:
    """What ParallelCluster says about a cluster file, in its own words. The region is the file's, or us-east-1."""
    return validate_text(Path(path).read_text(encoding="utf-8"), name)


def validate_text(config: str, name: str = "judged") -> list[Message]:
    parsed: Any = yaml.safe_load(config)
    region = parsed.get("Region") if isinstance(parsed, dict) else None
    messages = processes().ask(name, region or "us-east-1", config)
    return [Message(m["level"], m["validator"], m["text"]) for m in messages]
