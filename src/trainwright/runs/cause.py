"""Why a run failed. One failure makes every other rank fail too, with a traceback about a lost connection; this finds
the rank whose error is not such a consequence."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.schedulers.logs import LOG_NAME, RANK_LINE
from trainwright.schedulers.shell import Shell

ENOUGH = 16_384  # bytes at the end of a log: a traceback and what follows it
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Failure|Timeout)(?:: .*)?|(?:rank \d+: )?error: .+")
_ECHO = re.compile(
    r"connection (?:closed|reset|refused|was)|broken pipe|remote (?:worker|process|peer)|ncclRemoteError"
    r"|nccl communicator|watchdog|collective operation timeout|ChildFailedError|SignalException|DistNetworkError"
    r"|socket timeout|TCPStore",
    re.IGNORECASE,
)
_SIGNAL = re.compile(r"rank\s+: (\d+) .*?exitcode\s+: -\d+ \(pid: \d+\)\s+\((SIG\w+)\)", re.DOTALL)
_SRUN = re.compile(r"srun: error: (\S+): tasks? (\S+): (?!Exited with exit code|Terminated)(.+)")
_EXITED = re.compile(r"srun: error: (\S+): tasks? (\S+): Exited with exit code (\d+)")
# A requeue is what our script does about a crash, not the reason of one.
_NODE = re.compile(
    r"Node failure on (\S+)|\*\*\* JOB \d+ ON (\S+) CANCELLED AT \S+ DUE TO (?!JOB REQUEUE)(.+?)(?:,| \*\*\*)"
)
_OOM = re.compile(r"Detected \d+ oom[-_]kill event", re.IGNORECASE)


@dataclass(frozen=True)
class Cause:
    """Which rank failed, its error, and how many others have the same."""

    words: str
    rank: int | None = None
    others: int = 0

    def __str__(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank}: "
        more = "" if not self.others else f" (and {self.others} more {'rank' if self.others == 1 else 'ranks'})"
        return who + self.words + more


def cause_of(logs: Iterable[tuple[str, Sequence[str]]]) -> Cause | None:
    """The cause by the ends of the logs (`rank-3`, `job`, …), those that were written to last at the end."""
    logs = list(logs)
    raised = [error for source, lines in logs for error in _raised(source, lines).items()]
    own = [(rank, words) for rank, words in raised if not _ECHO.search(words)]
    if own:
        rank, words = own[0]
        return Cause(words, rank, sum(1 for _, said in own[1:] if said == words))
    launcher = "\n".join(line for source, lines in logs if not source.startswith("rank-") for line in lines)
    every = launcher + "\n".join(line for _, lines in logs for line in lines)
    cause = _killed(launcher, every) or _never_met(launcher)
    if cause is None and raised:
        return Cause("no rank says why: each only lost its connection to another", None)
    return cause


def _raised(source: str, lines: Sequence[str]) -> dict[int | None, str]:
    """The last error of each rank whose lines are in this log."""
    own = int(source.removeprefix("rank-")) if source.startswith("rank-") else None
    errors: dict[int | None, str] = {}
    for line in lines:
        marked = RANK_LINE.match(line)
        rank, words = (int(marked[1]), marked[2]) if marked else (own, line)
        if rank is not None and _RAISED.fullmatch(words.strip()) and not words.startswith(" "):
            errors[rank] = re.sub(r"^rank \d+: ", "", words.strip())
    return errors


def _never_met(launcher: str) -> Cause | None:
    """The nodes of a job that could not connect to each other before any rank started: torchrun's own error says so."""
    errors = [line.strip() for line in launcher.splitlines() if _RAISED.fullmatch(line.strip())]
    meeting = [line for line in errors if re.search(r"rendezvous|failed to connect|TCPStore", line, re.IGNORECASE)]
    return Cause(f"the nodes did not reach each other: {meeting[-1].rpartition('Error: ')[2]}") if meeting else None


def _killed(launcher: str, every: str) -> Cause | None:
    """Ends that no rank reports: by a signal, out of memory, with the node, at the time limit."""
    if _OOM.search(every):
        return Cause("the node ran out of memory, and the kernel ended a process")
    if node := _NODE.search(launcher):
        return Cause(f"node {node[1]} failed" if node[1] else f"ended on {node[2]}: {node[3].lower()}")
    for rank, name in _SIGNAL.findall(launcher):
        if name != "SIGTERM":
            return Cause(f"ended by {name}", int(rank))
    for node, task, code in _EXITED.findall(launcher):
        # The shell around a rank gives a signal as 128 and its number; SIGTERM is what ends the others afterwards.
        number = int(code) - 128
        if number in set(signal.Signals) and number != signal.SIGTERM:
            return Cause(f"task {task} on {node}: ended by {signal.Signals(number).name}")
    if task := _SRUN.search(launcher):
        return Cause(f"task {task[2]} on {task[1]}: {task[3]}")
    return None


def log_ends(where: str, shell: Shell) -> list[tuple[str, list[str]]]:
    """The ends of a run folder's logs in the order of their last line, with one command, also over ssh."""
    each = f'echo "==> $name"; tail -c {ENOUGH} "$name"; echo'
    script = f'cd "$1" && for name in $(ls -1tr -- *.log logs/*.log); do {each}; done'
    logs: list[tuple[str, list[str]]] = []
    for line in shell.run(["sh", "-c", script, "sh", where]).out.splitlines():
        name = line.removeprefix("==> ").rsplit("/", 1)[-1]
        if line.startswith("==> ") and LOG_NAME.fullmatch(name):
            logs.append((name.removesuffix(".log"), []))
        elif logs:
            logs[-1][1].append(line)
    return logs
