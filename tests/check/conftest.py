"""What the tests of single rules share: a file of a name and text, checked by chosen rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from trainwright.catalog import versions
from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

A_DAY = date(2026, 11, 18)  # versions that the tests write lose their support later


@pytest.fixture(autouse=True)
def _day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "today", lambda: A_DAY)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Finding]]:
    """The findings of a file: run(name, text, *codes)."""

    def findings(name: str, text: str, *codes: str) -> list[Finding]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return check([str(path)], Selection(select=codes)).findings

    return findings
