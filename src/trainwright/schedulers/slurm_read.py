"""Reading what Slurm prints: the queue, one job, accounting, the completion file. Formats of 20.11 to 25.11."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

from trainwright.schedulers.base import JobStatus, State

# The name comes last: it is the only field in which a user may have put the separator.
QUEUE_FORMAT = "%i|%T|%r|%D|%N|%P|%V|%S|%j"
FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=")

STATES: dict[str, State] = {
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUED": "pending",
    "REQUEUE_HOLD": "pending",
    "REQUEUE_FED": "pending",
    "SPECIAL_EXIT": "pending",
    "RESV_DEL_HOLD": "pending",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RUNNING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "completing",
    "COMPLETING": "completing",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "timeout",
    "TIMEOUT": "timeout",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "cancelled",
    "NODE_FAIL": "node-failed",
}


# The state of a job with several tasks is the first of these that one of them has.
PRECEDENCE: tuple[State, ...] = (
    "running",
    "completing",
    "pending",
    "failed",
    "node-failed",
    "timeout",
    "cancelled",
    "completed",
)


def state_word(word: str) -> State:
    """`CANCELLED by 0`, `COMPLETED+` and the like, as one of our states."""
    plain = re.match(r"[A-Z_]+", word.strip())
    return STATES.get(plain[0], "unknown") if plain else "unknown"


def from_queue(line: str, cluster: str) -> JobStatus:
    job, word, reason, nodes, node_list, queue, submitted, started, name = line.strip().split("|", 8)
    return JobStatus(
        job, name, state_word(word), "slurm", cluster, queue, int(nodes or 0), node_list,
        "" if reason == "None" else reason, submitted=submitted, started=_moment(started),
    )  # fmt: skip


def from_show_job(line: str, cluster: str) -> JobStatus:
    got = fields_of(line)
    state = state_word(got.get("JobState", ""))
    reason = got.get("Reason", "")
    return JobStatus(
        got["JobId"], got.get("JobName", ""), state, "slurm", cluster, got.get("Partition", ""),
        int(re.match(r"\d+", got.get("NumNodes", "0"))[0]),  # type: ignore[index]
        _null(got.get("NodeList", "")), "" if reason == "None" else reason, exit_code(got.get("ExitCode", "")),
        got.get("SubmitTime", ""), _moment(got.get("StartTime", "")), _moment(got.get("EndTime", "")),
        int(got.get("Restarts", 0)),
    )  # fmt: skip


def from_accounting(line: str, cluster: str) -> JobStatus:
    job, word, code, submitted, started, ended, nodes, node_list, queue, name = line.split("|", 9)
    return JobStatus(
        job, name, state_word(word), "slurm", cluster, queue, int(nodes or 0), _null(node_list), "",
        exit_code(code), submitted, _moment(started), _moment(ended),
    )  # fmt: skip


def from_completion_file(line: str, cluster: str) -> JobStatus:
    got = fields_of(line)
    return JobStatus(
        got["JobId"], got.get("Name", ""), state_word(got.get("JobState", "")), "slurm", cluster,
        got.get("Partition", ""), int(got.get("NodeCnt", 0) or 0), _null(got.get("NodeList", "")), "",
        exit_code(got.get("ExitCode", "")), got.get("SubmitTime", ""), _moment(got.get("StartTime", "")),
        _moment(got.get("EndTime", "")),
    )  # fmt: skip


def combined(job: str, tasks: list[JobStatus]) -> JobStatus:
    """One status for the tasks of an array: it runs while one runs, and failed if one did."""
    rank = {state: place for place, state in enumerate(PRECEDENCE)}
    first = min(tasks, key=lambda status: rank.get(status.state, len(rank)))
    return first if len(tasks) == 1 else dataclasses.replace(first, id=job)


def fields_of(line: str) -> dict[str, str]:
    """`A=1 B=two words C=x` as a mapping: a value goes on until the next name. Of a name that comes twice the first
    counts: what a user wrote (comment, command, folder) stands at the end of a line."""
    names = list(FIELD.finditer(line))
    ends = [match.start() for match in names[1:]] + [len(line)]
    pairs = [(match[1], line[match.end() : end].strip()) for match, end in zip(names, ends, strict=True)]
    return dict(reversed(pairs))


def settings_of(text: str) -> dict[str, str]:
    """`scontrol show config` as a mapping."""
    pairs = (line.split("=", 1) for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, value in pairs}


def exit_code(text: str) -> int | None:
    """`1:0` is status 1; `0:9` was killed by signal 9, which a shell calls 137."""
    match = re.match(r"(\d+):(\d+)", text)
    if not match:
        return None
    return int(match[1]) or (128 + int(match[2]) if int(match[2]) else 0)


def explain_reason(reason: str) -> str:
    """Why a job waits, in a sentence, with what to do about it where something can be done."""
    table = tomllib.loads((Path(__file__).parent / "pending.toml").read_text())["reason"]
    # squeue puts blanks where scontrol puts underlines, and a comma may end the words that matter.
    plain = re.match(r"\w+", reason.strip("() ").replace(" ", "_"))
    for row in table:
        if plain and re.fullmatch(row["is"], plain[0]):
            return f"{row['why']} ({reason})" + (f"; {row['do']}" if row.get("do") else "")
    return f"Slurm gives no known reason ({reason or 'none'})"


def _null(text: str) -> str:
    return "" if text in {"(null)", "None assigned", "None"} else text


def _moment(text: str) -> str:
    return "" if text in {"Unknown", "N/A", "None", "(null)"} else text
