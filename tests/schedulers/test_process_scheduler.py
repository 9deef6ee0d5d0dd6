"""Jobs as plain processes of this machine: they run, come back, end, and leave nothing when cancelled."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_bench import metrics, report

from counting_jobs import order, submit_counting
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobIdentity
from trainwright.schedulers.process import ProcessScheduler, members


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))

    def submit(*args: str, processes: int = 1) -> Run:
        spec = {"name": "here", "platform": "local", "queues": [{"name": "here", "nodes": 1, "cpus": 2}]}
        return submit_counting(order(spec, {"processes": processes}, ProcessScheduler()), *args)

    return submit


def wait(test: Callable[[], bool], run: Run, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, report(run)
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_rank_brings_the_job_back_to_its_end(start: Callable[..., Run]) -> None:
    run = start("--steps=30", "--pause=0.1", processes=2)
    scheduler = ProcessScheduler()
    wait(lambda: len(metrics(run)) >= 7, run)
    assert [job.id for job in scheduler.jobs()] == [run.name]
    rank = next(
        pid for pid in members(run.folder) if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )
    os.kill(rank, signal.SIGKILL)
    wait(lambda: scheduler.state(run.identity).over, run, 90)
    assert scheduler.state(run.identity).state == "completed", report(run)
    assert json.loads(metrics(run)[-1])["step"] == 30
    assert "crashed" in (run.folder / "events.jsonl").read_text()
    assert members(run.folder) == []


def test_cancel_leaves_no_process(start: Callable[..., Run]) -> None:
    run = start("--steps=100000", "--pause=0.1")
    wait(lambda: len(metrics(run)) >= 2, run)
    ProcessScheduler().cancel(run.identity)
    assert members(run.folder) == []
    assert ProcessScheduler().state(run.identity).state == "cancelled"


def test_a_failure_is_told(start: Callable[..., Run]) -> None:
    run = start("--no-such-option")
    wait(lambda: ProcessScheduler().state(run.identity).over, run)
    assert ProcessScheduler().state(run.identity).state == "failed"


def test_an_unknown_job_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    assert ProcessScheduler().state(JobIdentity("nothing")).state == "unknown"
