"""Why a run died: the rank that failed is told from those that only lost it. The texts are what torchrun, srun and our
trainer really print (2026-11-15, torch 2.13, Slurm 22.05)."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.runs.cause import Cause, cause_of, log_ends
from trainwright.schedulers.shell import Shell

ECHO = [
    "[rank0]: Traceback (most recent call last):",
    "[rank0]:     work.wait()",
    "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.77.0.2]:34997. This is typically caused by a "
    "remote worker crashing.",
]
OWN = [
    "hello from 1",
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "die.py", line 4, in <module>',
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
]
TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
bash FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 24369)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  host      : train-2
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 98)  (SIGKILL)
  error_file: <N/A>""".splitlines()


def test_the_rank_that_failed_and_not_the_one_that_lost_it() -> None:
    found = cause_of([("rank-0", ECHO), ("rank-1", OWN)])
    assert found == Cause("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", 1)
    assert str(found).startswith("rank 1: torch.OutOfMemoryError")


def test_a_mistake_that_all_ranks_meet_is_told_once() -> None:
    said = ["error: --lr is -1.0, it must be at least 0"]
    found = cause_of([("rank-0", said), ("rank-1", [f"rank 1: {said[0]}"]), ("rank-2", [f"rank 2: {said[0]}"])])
    assert str(found) == "rank 0: error: --lr is -1.0, it must be at least 0 (and 2 more ranks)"


def test_the_error_of_the_last_attempt_counts() -> None:
    found = cause_of([("rank-0", ["ValueError: first", "step 4", "[rank0]: KeyError: 'second'"])])
    assert found == Cause("KeyError: 'second'", 0)


def test_deaths_without_a_word() -> None:
    assert cause_of([("node-1", TORCHRUN), ("rank-0", ECHO)]) == Cause("ended by SIGKILL", 1)
    srun = ["srun: error: train-2: task 1: Segmentation fault", "srun: error: train-1: task 0: Terminated"]
    assert str(cause_of([("job", srun), ("rank-0", ECHO)])) == "task 1 on train-2: Segmentation fault"
    oom = ["slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."]
    assert "ran out of memory" in str(cause_of([("job", ["srun: error: train-2: task 1: Killed"]), ("rank-1", oom)]))
    late = ["slurmstepd: error: *** JOB 7 ON train-1 CANCELLED AT 2026-11-15T05:53:02 DUE TO TIME LIMIT ***"]
    assert str(cause_of([("job", late)])) == "ended on train-1: time limit"
    assert str(cause_of([("job", ["srun: error: Node failure on train-3"])])) == "node train-3 failed"


def test_what_is_not_known_is_not_made_up() -> None:
    assert cause_of([("job", ["all fine"]), ("rank-0", ["step 1", "error rate 0.1"])]) is None
    assert "no rank says why" in str(cause_of([("rank-0", ECHO)]))


def test_the_ends_of_the_logs_come_in_the_order_of_their_last_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for age, name in enumerate(["job.log", "logs/rank-0.log", "logs/rank-1.log"]):
        (tmp_path / name).write_text("x" * 20_000 + f"\nthe end of {name}")
        os.utime(tmp_path / name, ns=(0, 10**9 - age))
    (tmp_path / "logs" / "notes.txt").write_text("not a log")
    ends = log_ends(str(tmp_path), Shell())
    assert [source for source, _ in ends] == ["rank-1", "rank-0", "job"]
    assert ends[0][1][1] == "the end of logs/rank-1.log"
    assert log_ends(str(tmp_path / "nowhere"), Shell()) == []


def test_nodes_that_never_met_are_the_cause() -> None:
    words = "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address."
    cause = cause_of([("job", ["srun: error: n2: task 1: Exited with exit code 1"]), ("node-1", ["Traceback", words])])
    assert str(cause).startswith("the nodes did not reach each other: The client socket has failed to connect")


def test_a_rank_that_was_killed_behind_its_shell() -> None:
    lines = [
        "srun: error: train-2: task 1: Exited with exit code 137",
        "srun: error: train-1: task 0: Exited with exit code 1",
    ]
    assert str(cause_of([("job", lines)])) == "task 1 on train-2: ended by SIGKILL"


def test_a_requeue_is_what_follows_and_not_the_cause() -> None:
    """The script requeues a job that crashed; slurmstepd may write that down before or after the rank's own end."""
    requeued = "slurmstepd: error: *** JOB 7 ON train-1 CANCELLED AT 2026-11-15T05:53:02 DUE TO JOB REQUEUE ***"
    killed = "srun: error: train-2: task 1: Exited with exit code 137"
    for lines in ([killed, requeued], [requeued, killed]):
        cause = cause_of([("job", lines)])
        assert cause is not None
        assert "SIGKILL" in str(cause), str(cause)
