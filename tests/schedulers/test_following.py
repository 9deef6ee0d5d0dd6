"""Watching a run: files that shrink after a rewind, the time left after a restart, the bar on any terminal."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from trainwright.report.run_bar import bar_line
from trainwright.runs.progress import Progress
from trainwright.runs.steps import StepSource, parse
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.logs import folder_logs, new_lines
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.shell import Shell

MEGATRON = (
    " [2026-11-15 12:00:00] iteration {step:8d}/     500 | consumed samples:         1280 | elapsed time per iteration "
    "(ms): 500.0 | learning rate: 1.500E-04 | global batch size:   128 | lm loss: {loss}E+00 | loss scale: 1.0 | "
    "grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
RUNNING = JobStatus("1", "pretrain", "running", "slurm")


def line(step: int, at: float) -> dict[str, float]:
    return {"step": step, "loss": 1 / step, "tokens_per_s": 12_345.0, "step_s": 2.0, "time": at}


def test_the_live_line() -> None:
    progress = Progress(steps=100)
    assert progress.take([line(1, 10.0), line(2, 12.0)])
    assert progress.line() == "step 2/100  loss 0.5000  12.3k tokens/s  ETA 0:03:16"
    assert not progress.take([])


def test_a_line_that_was_cut_off_is_no_step() -> None:
    assert parse(json.dumps(line(1, 10.0))) == line(1, 10.0)
    assert [parse(text) for text in ('{"step": 3, "lo', "{}", "[1]", "step 3")] == [None] * 4


def test_a_trainer_without_metrics_is_followed_by_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    run = Run("own-1", "own", "process", ranks=2)
    (run.folder / "logs").mkdir(parents=True)
    (run.folder / "logs/rank-0.log").write_text("hello\n")
    log = run.folder / "logs/rank-1.log"  # Megatron-LM prints from the last rank
    log.write_text(MEGATRON.format(step=10, loss="9.5"))
    source, progress = StepSource(run, ProcessScheduler()), Progress()
    assert progress.take(source.new())
    assert (progress.step, progress.steps, progress.loss) == (10, 500, 9.5)
    with log.open("a") as more:
        more.write(MEGATRON.format(step=20, loss="8.5"))
    assert progress.take(source.new())
    assert (progress.step, progress.loss, progress.seconds_left()) == (20, 8.5, pytest.approx(480 * 0.5))
    assert not progress.take(source.new())


def test_a_rewind_starts_the_pace_over() -> None:
    progress = Progress(steps=10)
    progress.take([line(4, 10.0), line(5, 12.0)])
    progress.take([line(4, 500.0), line(5, 502.0)])
    assert progress.seconds_left() == pytest.approx(10.0)


@pytest.mark.parametrize("pause", [10.0, 30.0, 600.0])
@pytest.mark.parametrize("pace", [0.5, 2.0, 8.0])
def test_the_time_left_is_right_after_a_resume(pause: float, pace: float) -> None:
    """The trainer drops the lines of steps it repeats, so a resumed run goes on with the next step after a pause. The
    first step of a start is slow, every tenth saves, and after the resume the run has another pace."""
    progress = Progress(steps=200)
    clock = itertools.count()
    now = 0.0
    for step in range(1, 201):
        own = 2.0 if step <= 60 else pace
        slow = 5.0 if step in (1, 61) else 1.5 if next(clock) % 10 == 0 else 1.0
        now += own * slow + (pause if step == 61 else 0.0)
        progress.take([line(step, now)])
        if step >= 66 or 10 < step <= 60:
            left = progress.seconds_left()
            assert left is not None
            true = (200 - step) * own
            assert left == pytest.approx(true, rel=0.1, abs=0.1), f"step {step}"


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


@pytest.mark.parametrize("width", range(12, 201))
def test_the_bar_fits_every_terminal(width: int) -> None:
    progress = Progress(steps=50_000, predicted=9_000_000.0)
    progress.take([line(step, step * 2.0) for step in range(1, 41)])
    text = bar_line(progress, RUNNING, width)
    assert len(text) <= width
    assert "step 40" in text
    assert width < 75 or ("╌" in text and "ETA" in text and "9.00M" in text)


def test_the_bar_shows_prediction_beside_measurement_where_there_is_room() -> None:
    progress = Progress(steps=500, predicted=13_000.0)
    progress.take([line(step, step * 2.0) for step in range(1, 121)])
    words = "step 120/500  loss 0.0083  12.3k tokens/s (13.0k predicted)  ETA 0:12:40"
    assert bar_line(progress, RUNNING, 200) == "━" * 10 + "╌" * 30 + "  " + words
    assert bar_line(progress, RUNNING, 60) == "step 120/500  loss 0.0083  12.3k of 13.0k tok/s  ETA 0:12:40"
    assert bar_line(progress, RUNNING, 56) == "step 120/500  loss 0.0083  12.3k tok/s  ETA 0:12:40"
    ended = JobStatus("1", "pretrain", "cancelled", "slurm")
    assert bar_line(progress, ended, 60) == "cancelled  step 120/500  loss 0.0083  12.3k of 13.0k tok/s"
    waiting = JobStatus("1", "pretrain", "pending", "slurm", reason="Resources")
    assert bar_line(Progress(steps=500), waiting, 60) == "pending (Resources)"


def test_a_job_that_runs_once_per_node_is_followed_by_its_node_logs(tmp_path: Path) -> None:
    """Such a job has no log of a rank: `--follow` and `logs --rank 1` showed nothing."""
    (tmp_path / "logs").mkdir()
    for node in (0, 1):
        (tmp_path / f"logs/node-{node}.log").write_text(f"I am node {node}\n")
    assert list(folder_logs(Shell(), str(tmp_path), {}, rank=1)) == [("node-1", "I am node 1")]
    (tmp_path / "logs/rank-0.log").write_text("I am rank 0\n")
    assert list(folder_logs(Shell(), str(tmp_path), {}, rank=0)) == [("rank-0", "I am rank 0")]
    assert list(folder_logs(Shell(), str(tmp_path), {}, rank=1)) == []
