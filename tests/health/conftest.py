"""A home of its own for each local Slurm of these tests, removed with whatever runs in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.platforms.local import life, state
from trainwright.platforms.local.daemons import missing_programs


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    folder = Path(tempfile.mkdtemp(prefix="tw"))  # short, since unix sockets lie below it
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder))
    yield folder
    for name in state.names():
        life.down(name)
    shutil.rmtree(folder)
