"""The ranks of a node without torchrun: each learns its place, and they end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.recipes.framework import FOLDER

# A shell that waits in `read` may miss a signal that comes just before it; this one cannot.
STOPPABLE = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.write(1, b"ready\\n")  # in one piece: two ranks share the pipe
signal.sigwait({signal.SIGTERM})
sys.exit(3)
"""


def node(tmp_path: Path, script: str) -> subprocess.Popen[str]:
    """The second of two nodes, with two ranks that run a shell script."""
    command = [sys.executable, str(FOLDER / "node_ranks.py"), "2", "2", "bash", "-c", script]
    environment = {**os.environ, "NODE_RANK": "1", "OUT": str(tmp_path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_each_rank_learns_its_place(tmp_path: Path) -> None:
    out, _ = node(tmp_path, 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"').communicate(timeout=60)
    assert sorted(out.splitlines()) == ["2 0 4 2", "3 1 4 2"]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ('[ "$LOCAL_RANK" = 0 ] || exit 7; exec sleep 600', 7),  # one fails: the other does not wait for ever
        ('[ "$LOCAL_RANK" = 0 ] && kill -KILL $$; exec sleep 600', 137),
        ('[ "$LOCAL_RANK" = 0 ] || { : > "$OUT/saved"; exit 75; }; until [ -e "$OUT/saved" ]; do :; done', 75),
    ],
)
def test_they_end_together(script: str, status: int, tmp_path: Path) -> None:
    assert node(tmp_path, script).wait(timeout=60) == status


def test_a_stop_reaches_every_rank(tmp_path: Path) -> None:
    process = node(tmp_path, f"exec {sys.executable} -c '{STOPPABLE}'")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 3
