"""A virtual environment over the project's own: it holds what frameworks need beyond torch and transformers, and sees
those two through a .pth file. It costs seconds and no second torch, and leaves .venv as it is."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from judges.pcluster import ROOT, JudgeMissing


def layered(name: str) -> Path:
    """The folder of the environment, made from judges/NAME.txt if it is missing. Two test runs at once wait for each
    other."""
    folder, pins = ROOT / ".venvs" / name, ROOT / "judges" / f"{name}.txt"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "trainwright-pins.txt"
        below = str(Path(sysconfig.get_path("purelib")).resolve())  # a linked .venv is the same environment
        wanted = f"{pins.read_text()}# over {below}\n"
        if not stamp.is_file() or stamp.read_text() != wanted:
            _install(folder, pins, below)
            stamp.write_text(wanted)
    return folder


def _install(folder: Path, pins: Path, below: str) -> None:
    _done([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)])
    inner = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (inner / "below.pth").write_text(f"{below}\n")
    # The pins are complete: without looking for dependencies, nothing of the environment below is installed twice.
    words = ["install", "-q", "--no-deps", "--no-build-isolation", "-r", str(pins)]
    _done([sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), *words])


def _done(command: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_CONSTRAINT", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    if done.returncode:
        raise JudgeMissing(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
