"""Jobs on a real Slurm: two on one node, arrays, dependencies, why they wait, what accounting says, a thousand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm_bench import Bench, metrics, report

from trainwright.platforms.local import daemons, life
from trainwright.runs import follow, reach, store
from trainwright.schedulers.base import JobIdentity

pytestmark = pytest.mark.slurm


def test_two_jobs_share_a_node(bench: Bench) -> None:
    first = bench.submit("--steps=8", nodes=1, processes=2)
    second = bench.submit("--steps=8", nodes=1, processes=2)
    assert [bench.end(run).state for run in (first, second)] == ["completed", "completed"], report(second)
    assert len(metrics(first)) == len(metrics(second)) == 8


def test_the_run_folder_says_what_was_run(bench: Bench) -> None:
    run = bench.submit("--steps=2", nodes=2, env={"COLOUR": "blue"})
    assert bench.end(run).state == "completed", report(run)
    for name in (
        "spec.yaml",
        "job.sbatch",
        "environment",
        "git.json",
        "git.diff",
        "code/trainwright/train",
        "run.json",
    ):
        assert (run.folder / name).exists(), name
    assert "COLOUR=blue" in (run.folder / "environment").read_text()
    assert store.find(run.job_id) == store.find(run.name) == run


def test_logs_of_all_ranks_and_of_one(bench: Bench) -> None:
    run = bench.submit("--steps=4", nodes=2, processes=2)
    lines: list[str] = []
    live: list[str] = []
    ended = follow.follow(run, bench.scheduler, None, lines.append, lambda now, _: live.append(now.line()), 0.1)
    assert ended.state == "completed", report(run)
    assert {line.split()[0] for line in lines} == {f"[rank-{n}]" for n in range(4)}
    assert any(words.startswith("step 4/20  loss ") for words in live), live
    only = list(reach.log_lines(run, 3))
    assert len(only) == 1
    assert only[0].startswith("[rank-3] rank 3 of 4 on train-2")


def test_an_array_and_what_comes_after_it(bench: Bench) -> None:
    first = bench.submit("--steps=2", nodes=1, processes=1, array="0-2%2")
    then = bench.submit("--steps=2", nodes=1, processes=1, after=first.job_id)
    assert "has not ended" in bench.scheduler.explain_pending(then.identity)
    assert bench.end(then).state == "completed", report(then)
    ended = bench.scheduler.state(first.identity)
    assert (ended.id, ended.state) == (first.job_id, "completed")
    kept = bench.scheduler._completed(first.identity)
    assert kept is not None
    assert (kept.id, kept.state) == (first.job_id, "completed")
    assert [len((first.folder / f"array-{n}/metrics.jsonl").read_text().splitlines()) for n in range(3)] == [2, 2, 2]


def test_what_a_job_leaves_running_ends_with_it(bench: Bench) -> None:
    """A daemon that left the job's process tree is found by the job's number it carries."""
    runaway = "setsid --fork sleep 86399; sleep 0.5"
    job = daemons.run_on_head(bench.record, ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", runaway]).strip()
    here = lambda: _carrying(f"SLURM_JOB_ID={job}", f"SLURM_CONF={bench.record.conf}")  # noqa: E731
    daemons.wait_for(
        lambda: any("86399" in words for words in here()), "the daemon runs", bench.record.log("slurmctld")
    )
    daemons.wait_for(
        lambda: bench.scheduler.state(JobIdentity(job)).over, "the job ends", bench.record.log("slurmctld")
    )
    daemons.wait_for(lambda: not here(), "the daemon is gone", bench.record.log("slurmctld"), 15)


def _carrying(*marks: str) -> list[str]:
    """The command lines of processes that have all these in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if all(mark.encode() in words for mark in marks):
                found.append(Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # it ended while we looked
            continue
    return found


def test_the_end_is_known_when_the_queue_has_forgotten(bench: Bench) -> None:
    good, bad = bench.submit("--steps=2"), bench.submit("--no-such-option")
    ends = [bench.end(good), bench.end(bad)]
    found = [bench.scheduler._completed(run.identity) for run in (good, bad)]
    assert [(status.state, status.exit_code) for status in found if status] == [("completed", 0), ("failed", 2)]
    assert [status.state for status in ends] == ["completed", "failed"]


@pytest.mark.slow
def test_a_thousand_jobs_are_listed_in_under_a_second(bench: Bench) -> None:
    one = "sbatch --quiet --hold --job-name=many -p train -o /dev/null --wrap true"
    daemons.run_on_head(bench.record, ["sh", "-c", f"seq 1000 | xargs -P 4 -I@ {one}"])
    try:
        began = time.monotonic()
        jobs = reach.all_jobs()
        took = time.monotonic() - began
        shown = subprocess.run(
            [sys.executable, "-m", "trainwright", "jobs"], capture_output=True, text=True, check=True
        )
        whole = time.monotonic() - began - took
    finally:
        daemons.run_on_head(bench.record, ["scancel", "--name=many"])
    assert sum(status.state == "pending" for status in jobs) == 1000
    assert shown.stdout.count(" many ") == 1000
    print(f"1000 jobs: asked in {took:.2f} s, `trainwright jobs` in {whole:.2f} s")
    assert took < 0.5
    assert whole < 1.0


def test_the_environment_has_reasons_and_nothing_of_efa(bench: Bench) -> None:
    run = bench.submit("--steps=1", nodes=1, processes=1)
    text = (run.folder / "environment").read_text()
    assert "GLOO_SOCKET_IFNAME=" in text
    assert all("  # " in line for line in text.splitlines())
    assert "FI_" not in text
    assert "NCCL" not in text
    bench.end(run)


def test_a_database_knows_accounts_and_the_end_of_jobs(module_home: object) -> None:
    from trainwright.platforms.local import database
    from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
    from trainwright.platforms.local.platform import scheduler_on

    if not database.at_hand():
        pytest.skip("no MariaDB here")
    record = life.up(LocalCluster("books", (LocalQueue("train", 1),), database=True))
    try:
        scheduler = scheduler_on(record)
        sbatch = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3"]
        job = JobIdentity(daemons.run_on_head(record, sbatch).strip())
        daemons.wait_for(lambda: scheduler.state(job).over, "the job ends", record.log("slurmctld"))
        daemons.wait_for(lambda: scheduler._accounted(job) is not None, "it is in the books", record.log("slurmdbd"))
        daemons.wait_for(lambda: scheduler._accounted(job).over, "its end is", record.log("slurmdbd"))  # type: ignore[union-attr]
        found = scheduler._accounted(job)
        assert found is not None
        assert (found.state, found.exit_code) == ("failed", 3)
    finally:
        life.down("books")
