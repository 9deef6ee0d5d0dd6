"""A script that knows nothing of Trainwright survives what may happen to it, on a real Slurm under torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_bench import Bench, report

from trainwright.runs.store import Run

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(400)]

STOPPED = """
import os, pathlib, signal, sys
here = pathlib.Path(os.environ["TRAINWRIGHT_RUN"])
saved = here / f"state-{os.environ['RANK']}"
if saved.exists():
    sys.exit(0)
signal.signal(signal.SIGUSR1, lambda *_: (saved.write_text("saved"), sys.exit(75)))
(here / f"ready-{os.environ['RANK']}").write_text("")
while True:
    signal.pause()
"""
KILLED = """
import os, signal
if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def submitted(bench: Bench, text: str, tmp_path: Path) -> Run:
    script = tmp_path / "own.py"
    script.write_text(text)
    return bench.submit_job(script=str(script), nodes=2, processes=1)


def test_a_notice_before_the_time_limit_reaches_the_ranks(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, STOPPED, tmp_path)
    bench.wait(run, lambda _: all((run.folder / f"ready-{rank}").exists() for rank in (0, 1)), seconds=120)
    bench.scheduler.shell.output(["scancel", "--signal=USR1", run.job_id])
    assert bench.end(run, seconds=200).state == "completed", report(run)
    assert (run.folder / "events.jsonl").read_text().count('"event": "saved"') == 1


def test_a_rank_that_is_killed_is_started_again(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, KILLED, tmp_path)
    assert bench.end(run, seconds=250).state == "completed", report(run)
    assert (run.folder / "events.jsonl").read_text().count('"event": "crashed"') == 1
