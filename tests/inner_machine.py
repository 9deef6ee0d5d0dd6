"""A small machine inside this one: mounts, network and processes of its own, in which a script of the tests plays a
node. The test calls `run_inside`; the script uses the rest, and prints what it saw as JSON in its last line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "tini", "--"]
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
COPIED = {"etc": "/etc", "log": "/var/log"}  # folders that the machine has a copy of


@contextmanager
def machine_folder(*programs: str) -> Iterator[Path]:
    """An empty folder for a machine that needs these programs; the test is skipped where one is missing."""
    if missing := [name for name in (*programs, "unshare", "tini") if shutil.which(name, path=PATH) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("needs root, for mounts and users of its own")
    folder = Path(tempfile.mkdtemp(prefix="twm"))
    folder.chmod(0o755)
    for name in (*COPIED, "bin", "home"):
        (folder / name).mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def run_inside(folder: Path, script: Path) -> dict[str, Any]:
    """What the script saw."""
    tests = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PATH": PATH, "PYTHONPATH": tests, "TRAINWRIGHT_HOME": str(folder / "home")}
    words = [*UNSHARE, sys.executable, str(script), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def shell(text: str) -> str:
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{text[:300]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout.strip()


def until(text: str, logs: Sequence[str] = ()) -> str:
    """What a command says once it succeeds."""
    for _ in range(150):
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return done.stdout.strip()
        time.sleep(0.2)
    shown = shell(f"tail -n 15 {' '.join(logs)} 2>&1 || true") if logs else ""
    raise SystemExit(f"never: {text}\n{done.stdout}{done.stderr}\n{shown}")


def private(folder: Path, empty: Sequence[str]) -> None:
    """Copies of the folders that the scripts write to, and empty ones in the place of `empty`."""
    shell("ip link set lo up")
    for name, place in COPIED.items():
        shell(f"cp -a {place}/. {folder}/{name}; mount --bind {folder}/{name} {place}")
    for place in empty:
        shell(f"mount -t tmpfs none {place}")


def programs(folder: Path, texts: Mapping[str, str]) -> None:
    """Stand-ins, before all other programs of those names."""
    for name, text in texts.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
