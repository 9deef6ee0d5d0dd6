"""The faults that a drill injects: on a local cluster the real ones, elsewhere what an administrator can cause."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from trainwright.errors import UserError
from trainwright.platforms.local import life
from trainwright.platforms.local.state import Record
from trainwright.schedulers.base import JobIdentity
from trainwright.schedulers.slurm import SlurmScheduler

# Run on a node of the job: ends the process that carries a rank, and says so by its exit status.
KILL_RANK = """
for process in $(grep -slzx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do
  pid=${process%/environ}; pid=${pid#/proc/}
  if grep -qszx "RANK=$2" "$process" && [ "$pid" != "$$" ]; then kill -KILL "$pid" && exit 0; fi
done
exit 1
"""


class FaultInjector(Protocol):
    """What can be done to a running job; `restore` undoes what does not heal by itself."""

    def kill_node(self, job: JobIdentity) -> str: ...

    def kill_rank(self, job: JobIdentity) -> str: ...

    def restart_controller(self, job: JobIdentity) -> str: ...

    def reach_time_limit(self, job: JobIdentity) -> str: ...

    def restore(self) -> None: ...


@dataclass
class LocalFaults:
    """Real faults: a node loses its power and network, a rank is killed from outside, slurmctld is stopped."""

    record: Record
    scheduler: SlurmScheduler
    off: list[str] = field(default_factory=list)

    def kill_node(self, job: JobIdentity) -> str:
        node = job_nodes(self.scheduler, job)[-1]
        life.power_off(self.record, node)
        self.off.append(node)
        return f"{node} lost its power"

    def kill_rank(self, job: JobIdentity) -> str:
        rank = 1 if len(job_nodes(self.scheduler, job)) > 1 else 0
        life.kill_rank(self.record, job.id, rank)
        return f"rank {rank} was killed"

    def restart_controller(self, job: JobIdentity) -> str:
        life.restart_controller(self.record)
        return "slurmctld was stopped and started"

    def reach_time_limit(self, job: JobIdentity) -> str:
        return signal_ranks(self.scheduler, job)

    def restore(self) -> None:
        while self.off:
            life.power_on(self.record, self.off.pop())


@dataclass
class SlurmFaults:
    """On a cluster of machines: what the head node's commands can do. Needs the rights of a Slurm administrator."""

    scheduler: SlurmScheduler
    off: list[str] = field(default_factory=list)

    def kill_node(self, job: JobIdentity) -> str:
        node = job_nodes(self.scheduler, job)[-1]
        self.scheduler.shell.output(
            ["scontrol", "update", f"nodename={node}", "state=down", "reason=trainwright drill"]
        )
        self.off.append(node)
        return f"{node} was set down"

    def kill_rank(self, job: JobIdentity) -> str:
        node, rank = job_nodes(self.scheduler, job)[0], "0"
        where = [f"--jobid={job.id}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap"]
        self.scheduler.shell.output(["srun", *where, "sh", "-c", KILL_RANK, "kill", job.id, rank])
        return f"rank {rank} on {node} was killed"

    def restart_controller(self, job: JobIdentity) -> str:
        self.scheduler.shell.output(["sudo", "-n", "systemctl", "restart", "slurmctld"])
        deadline = time.monotonic() + 60
        while self.scheduler.shell.run(["scontrol", "ping"]).code != 0 and time.monotonic() < deadline:
            time.sleep(0.5)
        return "slurmctld was restarted"

    def reach_time_limit(self, job: JobIdentity) -> str:
        return signal_ranks(self.scheduler, job)

    def restore(self) -> None:
        while self.off:
            node = self.off.pop()
            # With ReturnToService=2 it has come back by itself, and Slurm refuses to resume it.
            if "down" in self.scheduler.shell.output(["sinfo", "--noheader", f"--nodes={node}", "-o", "%T"]):
                self.scheduler.shell.output(["scontrol", "update", f"nodename={node}", "state=resume"])


def job_nodes(scheduler: SlurmScheduler, job: JobIdentity) -> list[str]:
    names = scheduler.shell.output(["scontrol", "show", "hostnames", scheduler.state(job).node_list]).split()
    if not names:
        raise UserError(f"job {job.id} runs on no node", fix="look at `trainwright jobs`")
    return names


def signal_ranks(scheduler: SlurmScheduler, job: JobIdentity) -> str:
    """What Slurm does when the time limit comes near: the ranks, and not the job's script, get SIGUSR1."""
    scheduler.signal(job, "USR1")
    return "the ranks got the signal that the time limit is near"
