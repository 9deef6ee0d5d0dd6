"""Watching a run and its environment: files that shrink after a rewind, time left, reasons, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.runs.follow import Progress
from trainwright.schedulers.logs import new_lines
from trainwright.schedulers.shell import Shell


def line(step: int, at: float) -> str:
    return json.dumps({"step": step, "loss": 1 / step, "tokens_per_s": 12_345.0, "step_s": 2.0, "time": at})


def test_the_live_line() -> None:
    progress = Progress(steps=100)
    assert progress.take([line(1, 10.0), line(2, 12.0), "half a li"])
    assert progress.line() == "step 2/100  loss 0.5000  12.3k tokens/s  ETA 0:03:16"
    assert not progress.take(["{}"])


def test_a_rewind_starts_the_pace_over() -> None:
    progress = Progress(steps=10)
    progress.take([line(4, 10.0), line(5, 12.0)])
    progress.take([line(4, 500.0), line(5, 502.0)])
    assert progress.seconds_left() == pytest.approx(10.0)


def test_a_file_that_became_shorter_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert new_lines(Shell(), str(path), 0) == ([], 0)
    path.write_text("one\ntwo\nthr")
    lines, end = new_lines(Shell(), str(path), 0)
    assert (lines, end) == (["one", "two"], 8)
    with path.open("a") as more:
        more.write("ee\n")
    assert new_lines(Shell(), str(path), end) == (["three"], 14)
    path.write_text("one\n")
    assert new_lines(Shell(), str(path), 14) == (["one"], 4)
