"""A home of its own for each test, in a short folder; whatever cluster a test leaves there is taken down."""

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
    folder = Path(tempfile.mkdtemp(prefix="tw"))
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder))
    yield folder
    for name in state.names():
        life.down(name, force=True)
    shutil.rmtree(folder)


@pytest.fixture
def slurm(own_home: Path) -> Path:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    return own_home
