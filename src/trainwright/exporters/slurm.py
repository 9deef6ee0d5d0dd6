"""Slurm, by its commands: nodes, partitions, jobs and the scheduler's own statistics. Runs where the controller can be
reached, once per cluster, and never during a scrape: a busy controller answers late."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter

from trainwright.exporters.metric import MetricSet

SECONDS = 20.0
FOLDERS = ":/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin"
MARKS = {"~": "powered_down", "#": "powering_up", "%": "powering_down", "!": "powering_down", "*": "not_responding"}
USABLE = frozenset({"idle", "mixed", "allocated", "completing", "powered_down", "powering_up", "powering_down"})
USABLE |= {"reserved", "planned"}
NODES = ("sinfo", "--noheader", "--Node", "--format=%N|%R|%T|%C|%E")
WIDTH = 200  # of a column, which sinfo fills with blanks
GPUS = ("sinfo", "--noheader", "--Node", f"--Format=Partition:{WIDTH},Gres:{WIDTH},GresUsed:{WIDTH}")
JOBS = ("squeue", "--noheader", "--array", "--all", "--format=%i|%P|%T|%u|%D|%V|%S|%r|%N|%j")
DIAGNOSTICS = {
    "Server thread count": ("gauge", "server_threads", "Threads of slurmctld that serve a request."),
    "Agent queue size": ("gauge", "agent_queue", "Messages that slurmctld still has to send."),
    "DBD Agent queue size": ("gauge", "database_queue", "Records that wait for slurmdbd."),
    "Last cycle": ("gauge", "last_cycle_microseconds", "The last cycle of the scheduler."),
    "Mean cycle": ("gauge", "mean_cycle_microseconds", "The mean cycle of the scheduler."),
    "Last depth cycle": ("gauge", "last_depth", "Jobs looked at in the last cycle."),
    "Last queue length": ("gauge", "last_queue_length", "Jobs that waited in the last cycle."),
    "Total backfilled jobs (since last slurm start)": ("counter", "jobs", "Jobs that backfill started."),
    "Jobs submitted": ("counter", "jobs_submitted", "Jobs submitted since midnight UTC."),
    "Jobs started": ("counter", "jobs_started", "Jobs started since midnight UTC."),
    "Jobs completed": ("counter", "jobs_completed", "Jobs completed since midnight UTC."),
    "Jobs failed": ("counter", "jobs_failed", "Jobs failed since midnight UTC."),
}


class SlurmCollector:
    name = "slurm"

    def __init__(self) -> None:
        self.path = os.environ.get("PATH", "") + FOLDERS
        self.complaint = ""

    def available(self) -> bool:
        return shutil.which("sinfo", path=self.path) is not None

    def collect(self) -> MetricSet:
        metrics = MetricSet()
        nodes, jobs, diagnostics = self._run(*NODES), self._run(*JOBS), self._run("sdiag")
        up = metrics.gauge("slurm_controller_up", "Whether slurmctld answers.")
        up.add(nodes is not None and jobs is not None)
        _nodes(metrics, nodes or "")
        _gpus(metrics, self._run(*GPUS) or "")
        _jobs(metrics, jobs or "", time.time())
        _diagnostics(metrics, diagnostics or "")
        return metrics

    def _run(self, *command: str) -> str | None:
        """What a command printed; None where it failed or took too long."""
        program = shutil.which(command[0], path=self.path)
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        try:
            done = subprocess.run(
                [program or command[0], *command[1:]], capture_output=True, timeout=SECONDS, env=environment
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def node_state(word: str) -> str:
    """`idle~` -> powered_down, `down*` -> down: the marks that sinfo appends."""
    state, mark = word.rstrip("~#%!*$@^-").lower(), word[-1:]
    if mark == "*" and state == "down":
        return state
    return MARKS.get(mark, state)


def _nodes(metrics: MetricSet, output: str) -> None:
    nodes = metrics.gauge("slurm_nodes", "Nodes of a partition by state.")
    unusable = metrics.gauge("slurm_node_unusable", "1 for a node that cannot take jobs, with its state and reason.")
    cpus = metrics.gauge("slurm_cpus", "Processors of a partition by use.")
    states: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    for line in output.splitlines():
        parts = line.split("|", 4)
        if len(parts) < 5:
            continue
        node, partition, word, processors, reason = parts
        state = node_state(word)
        states[partition, state] += 1
        for kind, text in zip(("allocated", "idle", "other"), processors.split("/")):  # noqa: B905
            used[partition, kind] += int(text) if text.isdecimal() else 0
        if state not in USABLE:
            unusable.add(1, node=node, partition=partition, state=state, reason=reason)
    for (partition, state), count in sorted(states.items()):
        nodes.add(count, partition=partition, state=state)
    for (partition, kind), count in sorted(used.items()):
        cpus.add(count, partition=partition, use=kind)


def _gpus(metrics: MetricSet, output: str) -> None:
    """GPUs as Slurm counts them: `gpu:h100:8(S:0-1)` there, `gpu:h100:4(IDX:0-3)` in use."""
    used: Counter[tuple[str, str]] = Counter()
    for line in output.splitlines():
        partition, there, taken = (line[at : at + WIDTH].strip() for at in (0, WIDTH, 2 * WIDTH))
        if gpu_count(there):
            used[partition.rstrip("*"), "allocated"] += gpu_count(taken)
            used[partition.rstrip("*"), "idle"] += gpu_count(there) - gpu_count(taken)
    gpus = metrics.gauge("slurm_gpus", "GPUs of a partition by use.")
    for (partition, use), count in sorted(used.items()):
        gpus.add(count, partition=partition, use=use)


def gpu_count(gres: str) -> int:
    return sum(int(count) for count in re.findall(r"\bgpu:(?:[\w.-]+:)?(\d+)", gres))


def _jobs(metrics: MetricSet, text: str, now: float) -> None:
    jobs = metrics.gauge("slurm_jobs", "Jobs by partition and state, and the reason why they wait.")
    waiting = metrics.gauge("slurm_oldest_pending_seconds", "How long the oldest pending job has waited.")
    running = metrics.gauge("slurm_job_running_seconds", "How long a job has run.")
    of_job = metrics.gauge("slurm_job_node", "1 for each node of a running job.")
    counts: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[str, float] = {}
    for line in text.splitlines():
        parts = line.split("|", 9)
        if len(parts) < 10:
            continue
        job, partition, word, user, count, submitted, started, reason, nodes, name = parts
        state = word.lower()
        counts[partition, state, reason if state == "pending" else ""] += 1
        if (
            state == "pending"
            and submitted.isdecimal()
            and not reason.startswith(("JobHeld", "Dependency", "BeginTime"))
        ):
            oldest[partition] = max(oldest.get(partition, 0.0), now - int(submitted))
        if state == "running":
            since = now - int(started) if started.isdecimal() else None
            running.add(since, slurm_job=job, partition=partition, user=user, job_name=name, nodes=count)
            for node in expand(nodes):
                of_job.add(1, slurm_job=job, node=node)
    for (partition, state, reason), number in sorted(counts.items()):
        jobs.add(number, partition=partition, state=state, reason=reason)
    for partition, seconds in sorted(oldest.items()):
        waiting.add(seconds, partition=partition)


def expand(hosts: str) -> list[str]:
    """`train-[1-3,7],head` -> each name."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hosts):
        match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if not match:
            names.append(part)
            continue
        for piece in match[2].split(","):
            low, _, high = piece.partition("-")
            if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) - int(low) > 100_000:
                continue
            numbers = range(int(low), int(high or low) + 1)
            names += [name for n in numbers for name in expand(f"{match[1]}{n:0{len(low)}d}{match[3]}")]
    return names


def _diagnostics(metrics: MetricSet, text: str) -> None:
    """`sdiag`: the main scheduler's part, then the backfill part, with lines of the same names."""
    prefix = "slurm_"
    for line in text.splitlines():
        if line.startswith("Main schedule"):
            prefix = "slurm_scheduler_"
        elif line.startswith("Backfilling"):
            prefix = "slurm_backfill_"
        elif line.startswith("Latency"):
            return
        name, _, value = line.strip().partition(":")
        if name in DIAGNOSTICS and value.strip().isdecimal():
            kind, metric, meaning = DIAGNOSTICS[name]
            add = metrics.gauge if kind == "gauge" else metrics.counter
            add(prefix + metric, meaning).add(int(value))
