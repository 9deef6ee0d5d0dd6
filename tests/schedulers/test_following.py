"""Watching a run and its environment: files that shrink after a rewind, time left, reasons, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwright.schedulers.environment import check_names, explain, job_environment

from trainwright.errors import UserError
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


def test_efa_lines_only_where_there_is_efa() -> None:
    with_efa = {one.name for one in job_environment("p5.48xlarge", {})}
    without = {one.name for one in job_environment("g5.xlarge", {})}
    assert any(name.startswith("FI_") for name in with_efa)
    assert not any(name.startswith("FI_") for name in without)
    assert not any(name.startswith("FI_") for name in {one.name for one in job_environment(None, {})})


def test_every_line_has_a_reason_and_the_users_word_wins() -> None:
    lines = job_environment("p5.48xlarge", {"OMP_NUM_THREADS": "7"}, cpus=12)
    assert all(one.why for one in lines)
    assert [one.value for one in lines if one.name == "OMP_NUM_THREADS"] == ["7"]
    assert "OMP_NUM_THREADS=7" in explain(lines)


def test_a_rank_written_by_hand_is_refused() -> None:
    with pytest.raises(UserError, match="RANK"):
        check_names({"RANK": "0"})


def test_an_unknown_instance_type_is_told() -> None:
    with pytest.raises(UserError, match="not in the catalog"):
        job_environment("p9.enormous", {})
