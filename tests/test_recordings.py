"""`make docs` records terminals. On a machine without Slurm the verbs that need one say so; nothing waits for a run
that nobody can start."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools/recordings.py"


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("recordings", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "recordings", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "IMAGES", tmp_path)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))  # which the tool sets for the app: put back at the end
    return module


def test_without_slurm_the_pictures_say_so(
    recordings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    recordings.record_watch({"TRAINWRIGHT_HOME": str(tmp_path / "home")})
    recordings.record(next(each for each in recordings.RECORDINGS if each.verb == "status"), tmp_path, {})
    for verb in ("watch", "status"):
        assert "no&#160;Slurm&#160;on&#160;the&#160;machine" in (tmp_path / f"{verb}.svg").read_text(encoding="utf-8")


def test_a_run_that_never_comes_is_not_waited_for(
    recordings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("textual")
    monkeypatch.setattr(recordings.shutil, "which", lambda program: f"/usr/sbin/{program}")
    monkeypatch.setattr(recordings, "SECONDS_TO_A_RUN", 0.5)
    with pytest.raises(TimeoutError):
        recordings.record_watch({"TRAINWRIGHT_HOME": str(tmp_path / "home")})
