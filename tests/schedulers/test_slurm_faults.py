"""The faults of a long run, caused on a real Slurm: what was lost, and that the run ends where it should."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from slurm_bench import Bench, metrics, report

from trainwright.errors import UserError
from trainwright.platforms.local import life, state
from trainwright.runs import history
from trainwright.runs.code import check_script
from trainwright.runs.store import Run

pytestmark = pytest.mark.slurm
RANKS = 4  # two nodes with two GPUs each
STEPS = 60


def losses(run: Run) -> dict[int, float]:
    """step -> the loss it had last; a step done twice must have had the same loss both times."""
    found: dict[int, float] = {}
    for line in metrics(run):
        record = json.loads(line)
        assert found.get(record["step"], record["loss"]) == record["loss"], "a repeated step differs"
        found[record["step"]] = record["loss"]
    return found


def expected(steps: int) -> list[float]:
    """The losses of an undisturbed run, computed here and not by the program under test."""
    value, chain = 1, []
    for step in range(steps):
        value = (value * 48271 + step) % 2147483647
        chain.append(value / 2147483647)
    return chain


def events(run: Run) -> list[str]:
    return [json.loads(line)["event"] for line in (run.folder / "events.jsonl").read_text().splitlines()]


def ended_well(bench: Bench, run: Run, steps: int = STEPS) -> None:
    status = bench.end(run)
    assert status.state == "completed", f"{status}\n{report(run)}"
    got = losses(run)
    assert [got[step] for step in sorted(got)] == expected(steps)


def test_a_node_dies_and_the_job_comes_back(bench: Bench) -> None:
    run = bench.submit(f"--steps={STEPS}", "--pause=0.1", requeue=True)
    bench.at_step(run, 12)
    victim = bench.scheduler.state(run.identity).node_list  # train-[1-2]: the last one, so not the batch script's host
    name = "train-2" if "2" in victim else "train-4"
    life.power_off(bench.record, name)
    ended_well(bench, run)
    assert events(run).count("started") == 2
    repeated = len(metrics(run)) - STEPS
    assert 0 <= repeated <= 5, "more than one checkpoint interval was lost"
    life.power_on(bench.record, name)


@pytest.mark.slow
def test_the_first_node_dies_with_the_batch_script(bench: Bench) -> None:
    run = bench.submit(f"--steps={STEPS}", "--pause=0.1")
    bench.at_step(run, 12)
    nodes = life.daemons.run_on_head(
        bench.record, ["scontrol", "show", "hostnames", bench.scheduler.state(run.identity).node_list]
    ).split()
    life.power_off(bench.record, nodes[0])
    ended_well(bench, run)
    life.power_on(bench.record, nodes[0])


def test_a_rank_is_killed_and_the_job_comes_back(bench: Bench) -> None:
    run = bench.submit(f"--steps={STEPS}", "--pause=0.1")
    bench.at_step(run, 12)
    life.kill_rank(bench.record, run.job_id, 1)
    ended_well(bench, run)
    assert events(run) == ["started", "crashed", "started", "ended"]
    assert "ended by SIGKILL" in str(history.recovered(run, bench.end(run))), (
        "a crash that was survived has a cause too"
    )


def test_the_controller_restarts_and_the_job_lives_on(bench: Bench) -> None:
    run = bench.submit(f"--steps={STEPS}", "--pause=0.1")
    bench.at_step(run, 5)
    life.restart_controller(bench.record)
    ended_well(bench, run)
    assert events(run) == ["started", "ended"]


@pytest.mark.slow
def test_the_time_limit_comes_and_the_job_goes_on_after_it(bench: Bench) -> None:
    # Slurm counts limits in minutes; the ranks are told at half time.
    run = bench.submit("--steps=420", "--pause=0.1", time=60)
    status = bench.end(run, 120)
    assert status.state == "completed", f"{status}\n{report(run)}"
    assert "saved" in events(run)
    assert len(metrics(run)) == 420, "a saved run repeats no step"
    got = losses(run)
    assert [got[step] for step in sorted(got)] == expected(420)


def test_a_rank_that_saves_longer_than_the_others_is_waited_for(bench: Bench) -> None:
    run = bench.submit("--steps=40", "--pause=0.1", "--save-seconds=9")
    bench.at_step(run, 3)
    bench.scheduler.signal(run.identity, "USR1")
    ended_well(bench, run, 40)
    assert events(run) == ["started", "saved", "started", "ended"], report(run)
    assert len(metrics(run)) == 40, "a saved run repeats no step"


def test_a_notice_that_comes_while_the_ranks_start_is_kept(bench: Bench) -> None:
    run = bench.submit("--steps=40", "--pause=0.1", "--start-seconds=3")
    bench.wait(run, lambda status: interpreters(bench, run) >= RANKS)  # each behind its shell, which keeps the notice
    bench.scheduler.signal(run.identity, "USR1")
    ended_well(bench, run, 40)
    assert events(run) == ["started", "saved", "started", "ended"], report(run)


def test_a_mistake_in_the_code_is_not_tried_again(bench: Bench) -> None:
    run = bench.submit("--no-such-option")
    status = bench.end(run)
    assert (status.state, status.exit_code) == ("failed", 2)
    assert events(run) == ["started", "ended"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"queue": "trian"}, "trian"),
        ({"nodes": 9}, "at most 4"),
        ({"constraint": "h100"}, "refused"),
        ({"data": "/no/such/data"}, "the data /no/such/data does not exist"),
        ({"container": "/no/such.sqsh"}, "the container /no/such.sqsh does not exist"),
        ({"container": "nvcr.io#nvidia/pytorch:25.10-py3"}, "no pyxis"),
        ({"account": "nobody", "reservation": "none"}, "refused"),
    ],
)
def test_what_slurm_refuses_is_told_at_submission(bench: Bench, fields: dict[str, object], words: str) -> None:
    before = sorted((bench.record.folder.parent.parent / "runs").glob("*"))
    with pytest.raises(UserError, match=words):
        bench.submit(**fields)
    assert sorted((bench.record.folder.parent.parent / "runs").glob("*")) == before, "a refused job left a folder"


def test_a_bad_script_is_refused_before_it_is_queued(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(UserError, match="not Python") as caught:
        check_script(broken)
    assert caught.value.where.startswith(f"{broken}:1:")
    with pytest.raises(UserError, match="no script"):
        bench.submit_job(script=str(tmp_path / "missing.py"))
    assert bench.scheduler.jobs() == []


def test_cancel_leaves_no_process(bench: Bench) -> None:
    run = bench.submit("--steps=100000", "--pause=0.1")
    bench.at_step(run, 3)
    assert any(role.startswith("job-") for role in state.processes(bench.record).values())
    bench.scheduler.cancel(run.identity)
    status = bench.end(run)
    assert status.state == "cancelled"
    bench.wait(run, lambda status: not job_processes(bench, run), 20)
    assert bench.scheduler.jobs() == [], "a cancelled job came back"


def job_processes(bench: Bench, run: Run) -> list[int]:
    mark = f"TRAINWRIGHT_RUN={run.folder}".encode()
    numbers = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                numbers.append(int(entry))
        except OSError:  # it ended while we looked
            continue
    return numbers


def interpreters(bench: Bench, run: Run) -> int:
    """How many processes of the job are a rank's own interpreter, and not a shell or a command of the script."""
    count = 0
    for number in job_processes(bench, run):
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        count += words[0] == os.fsencode(sys.executable) and b"--start-seconds=3" in words
    return count
