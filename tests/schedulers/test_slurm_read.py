"""What Slurm prints, read: lines as 22.05 and later write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwright.schedulers import slurm_read as read
from trainwright.schedulers.base import JobIdentity, JobStatus, State
from trainwright.schedulers.shell import Done, Shell, Unreachable
from trainwright.schedulers.slurm import SlurmScheduler

SHOWN = (
    "JobId=7 JobName=my job UserId=root(0) GroupId=root(0) JobState=NODE_FAIL Reason=NodeDown Dependency=(null) "
    "Requeue=1 Restarts=2 BatchFlag=1 ExitCode=0:9 RunTime=00:00:04 TimeLimit=UNLIMITED "
    "SubmitTime=2026-11-15T02:59:46 StartTime=2026-11-15T02:59:47 EndTime=Unknown Partition=train "
    "NodeList=train-[1-2] NumNodes=2-4 Command=/a b/job.sbatch"
)


def test_a_job_as_scontrol_shows_it() -> None:
    status = read.from_show_job(SHOWN, "demo")
    assert (status.id, status.name, status.state, status.exit_code) == ("7", "my job", "node-failed", 137)
    assert (status.nodes, status.node_list, status.restarts, status.ended) == (2, "train-[1-2]", 2, "")


def test_a_name_may_hold_the_separator() -> None:
    status = read.from_queue("12_[0-3]|PENDING|Resources|4||train|2026-11-15T02:00:00|N/A|a|b", "demo")
    assert (status.id, status.name, status.state, status.reason) == ("12_[0-3]", "a|b", "pending", "Resources")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 0", "cancelled"),
        ("COMPLETED", "completed"),
        ("OUT_OF_MEMORY", "failed"),
        ("TIMEOUT", "timeout"),
        ("REQUEUED", "pending"),
        ("NEW_STATE_OF_2030", "unknown"),
    ],
)
def test_states_are_one_vocabulary(word: str, state: str) -> None:
    assert read.state_word(word) == state


@pytest.mark.parametrize(("text", "code"), [("0:0", 0), ("2:0", 2), ("0:9", 137), ("", None)])
def test_exit_codes(text: str, code: int | None) -> None:
    assert read.exit_code(text) == code


def test_the_completion_file() -> None:
    line = (
        "JobId=9 UserId=root(0) GroupId=root(0) Name=count JobState=FAILED Partition=train TimeLimit=UNLIMITED "
        "StartTime=2026-11-15T02:00:00 EndTime=2026-11-15T02:00:09 NodeList=n-1 NodeCnt=1 ProcCnt=4 ExitCode=1:0"
    )
    status = read.from_completion_file(line, "demo")
    assert (status.state, status.exit_code, status.ended) == ("failed", 1, "2026-11-15T02:00:09")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "next in line"),
        ("(ReqNodeNotAvail, UnavailableNodes:train-2)", "down, drained or reserved"),
        ("QOSMaxNodePerUserLimit", "limit of its account or QoS"),
        ("SomethingNew", "no known reason"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions", "are down"),
        ("(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)", "are down"),
        ("(ReqNodeNotAvail, UnavailableNodes:train-3)", "are down, drained or reserved"),
    ],
)
def test_reasons_are_explained(reason: str, words: str) -> None:
    assert words in read.explain_reason(reason)


def test_slurm_24_11_prints_what_we_read() -> None:
    """Kept from a real 24.11.5 (Debian trixie): the formats have not moved since 22.05."""
    text = (Path(__file__).parent / "files" / "slurm-24.11.txt").read_text()
    parts = dict(re.findall(r"^== (\w+)\n(.*?)(?=^== )", text, re.MULTILINE | re.DOTALL))
    queue = [read.from_queue(line, "tx") for line in parts["queue"].splitlines()]
    assert [(job.id, job.name, job.state) for job in queue][0::3] == [
        ("4_[0-3]", "wrap", "pending"),
        ("1", "my job", "pending"),
    ]
    shown = [read.from_show_job(line, "tx") for line in parts["show"].splitlines()]
    assert [job.state for job in shown] == ["completed", "failed", "running", "pending"]
    assert [job.exit_code for job in shown] == [0, 3, 0, 0]
    assert [(job.nodes, job.node_list, job.reason) for job in shown[2:]] == [(2, "n[1-2]", ""), (2, "", "Resources")]
    assert read.from_show_job(parts["after"], "tx").state == "cancelled"
    settings = read.settings_of(parts["config"])
    assert (settings["JobCompType"], settings["SlurmdTimeout"]) == ("jobcomp/filetxt", "300 sec")
    ended = {
        job.id: job.state for job in (read.from_completion_file(line, "tx") for line in parts["comp"].splitlines())
    }
    assert ended == {"1": "completed", "2": "failed", "3": "cancelled", "4": "cancelled", "5": "completed"}


def test_an_array_is_over_when_its_last_task_is() -> None:
    def one(state: State) -> JobStatus:
        return JobStatus("7_1", "a", state, "slurm")

    assert read.combined("7", [one("completed"), one("running"), one("failed")]).state == "running"
    assert read.combined("7", [one("completed"), one("failed"), one("cancelled")]).state == "failed"
    assert read.combined("7", [one("completed"), one("completed")]).id == "7"


class Silent(Shell):
    """A cluster that has forgotten the job and keeps no accounts."""

    def run(self, command: object, text: str = "", timeout: float = 1.0) -> Done:
        assert isinstance(command, list)
        if command[:3] == ["scontrol", "show", "config"]:
            return Done(0, "AccountingStorageType   = accounting_storage/none\nJobCompType  = jobcomp/none\n", "")
        return Done(1, "", "slurm_load_jobs error: Invalid job id specified")


def test_a_job_nobody_knows_is_unknown_and_not_done() -> None:
    assert SlurmScheduler(Silent()).state(JobIdentity("7")).state == "unknown"


class Answering(Shell):
    """A controller with one job of the number that is asked for, or one that does not answer."""

    def run(self, command: object, text: str = "", timeout: float = 1.0) -> Done:
        if self.host:
            return Done(255, "", "ssh: connect to host head port 22: Connection refused")
        if command == ["scontrol", "show", "config"]:
            return Done(0, "AccountingStorageType = (null)\nJobCompType = jobcomp/none\n", "")
        return Done(0, "JobId=7 JobName=pretrain-1 JobState=RUNNING NumNodes=2 ExitCode=0:0\n", "")


def test_a_job_of_the_same_number_and_another_name_is_another_job() -> None:
    ours = SlurmScheduler(Answering())
    assert ours.state(JobIdentity("7", "pretrain-1")).state == "running"
    assert ours.state(JobIdentity("7", "pretrain-2")).state == "unknown"


def test_no_answer_is_never_an_empty_list() -> None:
    away = SlurmScheduler(Answering(host="head"), cluster="far")
    for ask in (away.jobs, lambda: away.state(JobIdentity("7")), lambda: away.cancel(JobIdentity("7"))):
        with pytest.raises(Unreachable, match=r"cannot reach far \(head\): ssh: connect") as caught:
            ask()
        assert caught.value.status == 1
