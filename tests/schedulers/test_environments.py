"""A process is found by the marks in its environment at any moment of its life."""

from __future__ import annotations

import subprocess
import sys
import time

from trainwright.schedulers.environments import environment, environments

# Replaces itself by itself without end, so that it is inside exec most of the time.
AGAIN = "import os, sys; os.execv(sys.executable, [sys.executable, '-IS', '-c', sys.argv[1], sys.argv[1]])"


def test_a_process_inside_exec_is_not_overlooked() -> None:
    """The head of a local cluster was: its script ends with exec, and `up` looked at that moment."""
    process = subprocess.Popen([sys.executable, "-IS", "-c", AGAIN, AGAIN], env={"MARK": "here"})
    try:
        end = time.monotonic() + 1.5
        looks = [b"MARK=here" in environment(process.pid) for _ in iter(lambda: time.monotonic() < end, False)]
        assert len(looks) > 100
        assert all(looks)
    finally:
        process.kill()
        process.wait()
    assert process.pid not in dict(environments())
