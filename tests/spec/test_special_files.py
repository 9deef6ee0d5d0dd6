"""Named pipes and devices where a file belongs: an error at once, never a process that waits or reads without end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.catalog.models import model as find_model
from trainwright.errors import UserError
from trainwright.spec.load import load
from trainwright.train.models.shape import lookup

SPEC = "name: c\nplatform: local\nqueues: [{name: q, nodes: 1, cpus: 1}]\njobs: [{name: j, model: pipe.json}]\n"


def verb(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: one that hangs is killed."""
    words = ["bash", "-c", f"{sys.executable} -m trainwright {command}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("command", ["plan pipe.yaml", "submit pipe.yaml", "predict pipe.yaml", "check spec.yaml"])
def test_a_named_pipe_is_refused(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = verb(tmp_path, command)
    assert done.returncode in (1, 2)
    assert "not a regular file" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("read", [find_model, lookup])
def test_a_model_is_a_regular_file(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match="not a regular file"):
        read(str(tmp_path / "config.json"))
    (tmp_path / "big.json").touch()
    os.truncate(tmp_path / "big.json", 2**40)
    with pytest.raises(UserError, match="at most"):
        read(str(tmp_path / "big.json"))


def test_a_device_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in ("/dev/zero", tmp_path):
        with pytest.raises(UserError, match="not a regular file"):
            load(path)


def test_a_pipe_of_the_shell_is_read(tmp_path: Path) -> None:
    done = verb(tmp_path, "submit <(printf 'name: c') --dry-run")
    assert "'platform' is missing" in done.stderr
