"""What Slurm prints, read: lines as 20.11 and later write them."""

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


# `scontrol --oneliner show job` by version, after their documentation: what came, went and was renamed stands at {a}
# (before the partition), {b} (among the nodes) and {c} (at the end).
SHOW_JOB = (
    "JobId=41 JobName=train-1 UserId=me(1000) GroupId=me(1000) MCS_label=N/A Priority=9 Nice=0 Account=a QOS=n "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:04 TimeLimit=1-00:00:00 TimeMin=N/A SubmitTime=2026-11-15T03:55:47 EligibleTime=2026-11-15T03:55:47 "
    "AccrueTime=2026-11-15T03:55:47 StartTime=2026-11-15T03:55:49 EndTime=2026-11-16T03:55:49 Deadline=N/A {a} "
    "Partition=main AllocNode:Sid=head:12 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 {b} "
    "NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* Features=(null) DelayBoot=00:00:00 "
    "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) {c}"
)
TRES = "ReqTRES=cpu=2,mem=4000M,node=2,billing=2 AllocTRES=cpu=2,node=2,billing=2"
VERSIONS = {
    "20.11": ("SuspendTime=None SecsPreSuspend=0", "TRES=cpu=2,node=2,billing=2", "WorkDir=/b Power= NtasksPerTRES:0"),
    "21.08": ("PreemptTime=None Scheduler=Main", "TRES=cpu=2,node=2,billing=2", "Command=/a WorkDir=/b Power="),
    "22.05": ("Scheduler=Backfill", "TRES=cpu=2,node=2", "Comment=several words WorkDir=/b"),
    "23.02": ("Scheduler=Main", TRES, "StdOut=/b/job.log Power="),
    "23.11": ("Scheduler=Main", TRES, "TresPerTask=cpu=1"),
    "24.05": ("Scheduler=Main", TRES, "StdIn=/dev/null StdOut=/b/job.log"),
    "25.05": ("Scheduler=Main", f"StepMgrEnabled=Yes {TRES}", "LicensesAlloc=(null)"),
    "25.11": ("Scheduler=Main", TRES, "SubmitLine=sbatch --parsable a JobState=FAILED Restarts=9"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_says_the_same_of_a_job(version: str) -> None:
    status = read.from_show_job(SHOW_JOB.format(**dict(zip("abc", VERSIONS[version], strict=True))), "demo")
    assert (status.id, status.name, status.state, status.exit_code) == ("41", "train-1", "running", 0)
    assert (status.queue, status.nodes, status.node_list, status.restarts) == ("main", 2, "n[1-2]", 1)
    assert (status.submitted, status.started) == ("2026-11-15T03:55:47", "2026-11-15T03:55:49")


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
