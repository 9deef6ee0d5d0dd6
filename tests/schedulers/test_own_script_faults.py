"""A script that knows nothing of Trainwright survives what may happen to it, on a real Slurm under torchrun."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from slurm_bench import Bench, report

from trainwright.platforms.local import life, state
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
# What it writes goes to files beside it: it reads no variable of ours.
WAITING = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / f"ready-{os.environ['RANK']}").write_text("")
if sys.argv[2] == "checkpoint":
    (here / "checkpoints").mkdir(exist_ok=True)
    (here / "checkpoints/last.pt").write_text("weights")
while not (here / "go").exists() and not (sys.argv[2] != "stay" and os.environ.get("SLURM_RESTART_COUNT", "0") > "0"):
    time.sleep(0.1)
"""


def submitted(bench: Bench, text: str, tmp_path: Path, *args: str, nodes: int = 2, **fields: object) -> Run:
    script = tmp_path / "own.py"
    script.write_text(text)
    return bench.submit_job(script=str(script), nodes=nodes, processes=1, args=list(args), **fields)


def ready(bench: Bench, run: Run, folder: Path, ranks: int = 2) -> None:
    bench.wait(run, lambda _: all((folder / f"ready-{rank}").exists() for rank in range(ranks)), seconds=120)


def events(run: Run) -> list[str]:
    lines = (run.folder / "events.jsonl").read_text().splitlines()
    return [event["event"] for event in map(json.loads, lines) if event["event"] != "stopped"]


def test_a_notice_before_the_time_limit_reaches_the_ranks(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, STOPPED, tmp_path)
    ready(bench, run, run.folder)
    bench.scheduler.shell.output(["scancel", "--signal=USR1", run.job_id])
    assert bench.end(run, seconds=200).state == "completed", report(run)
    assert events(run).count("saved") == 1


def test_a_rank_that_is_killed_is_started_again(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, KILLED, tmp_path)
    assert bench.end(run, seconds=250).state == "completed", report(run)
    assert events(run).count("crashed") == 1


def test_a_node_that_dies_brings_the_job_back(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, WAITING, tmp_path, str(tmp_path), "once")
    ready(bench, run, tmp_path)
    nodes = bench.scheduler.shell.output(
        ["scontrol", "show", "hostnames", bench.scheduler.state(run.identity).node_list]
    ).split()
    life.power_off(bench.record, nodes[-1])
    try:
        assert bench.end(run, seconds=200).state == "completed", report(run)
        assert events(run) == ["started", "started", "ended"]
    finally:
        life.power_on(bench.record, nodes[-1])


def test_a_killed_controller_does_not_end_the_job(bench: Bench, tmp_path: Path) -> None:
    run = submitted(bench, WAITING, tmp_path, str(tmp_path), "stay")
    ready(bench, run, tmp_path)
    bench.wait(run, lambda status: status.state == "running")
    now = time.time()
    life.daemons.run_on_head(bench.record, ["scontrol", "update", f"jobid={run.job_id}", "comment=saved"])
    kept = bench.record.folder / "spool/ctld/job_state"  # written some seconds after a change; a SIGKILL leaves that
    bench.wait(run, lambda _: kept.stat().st_mtime > now, seconds=30)
    state.kill(bench.record, lambda role: role == "slurmctld")
    life.restart_controller(bench.record)
    (tmp_path / "go").touch()
    assert bench.end(run, seconds=120).state == "completed", report(run)
    assert events(run) == ["started", "ended"]


def test_a_time_limit_that_a_script_ignores(bench: Bench, tmp_path: Path) -> None:
    """With a checkpoint since its start it comes back; without one it has only lost its time: `timeout`."""
    folders = [tmp_path / "with", tmp_path / "without"]
    for folder in folders:
        folder.mkdir()
    saving = submitted(
        bench, WAITING, folders[0], str(folders[0]), "checkpoint", nodes=1, time=60,
        checkpoint={"to": str(folders[0] / "checkpoints")},
    )  # fmt: skip
    idle = submitted(bench, WAITING, folders[1], str(folders[1]), "stay", nodes=1, time=60)
    assert bench.end(saving, seconds=200).state == "completed", report(saving)
    assert events(saving) == ["started", "limited", "started", "ended"]
    assert bench.end(idle, seconds=200).state == "timeout", report(idle)
    assert events(idle) == ["started"]
