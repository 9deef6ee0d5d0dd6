"""The Slurm scheduler: one sbatch script a job, submitted and followed on the head node or over ssh."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Mapping
from functools import cached_property

from trainwright.errors import UserError, did_you_mean
from trainwright.schedulers.base import SAVED, JobStatus, Launch, Script, refuse_what_it_cannot
from trainwright.schedulers.render import render_template
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.slurm_read import (
    QUEUE_FORMAT,
    combined,
    explain_reason,
    from_accounting,
    from_completion_file,
    from_queue,
    from_show_job,
    settings_of,
)

CANNOT: dict[str, str] = {
    "secrets": "Slurm keeps no secrets; read them in the job from a file that only you may read",
    "kind": "it is for jobs on Kubernetes",
}
ACCOUNTING = "JobID,State,ExitCode,Submit,Start,End,NNodes,NodeList,Partition,JobName"


@dataclasses.dataclass(frozen=True)
class SlurmScheduler:
    """Slurm 22.05 and later, reached through a shell."""

    shell: Shell = dataclasses.field(default_factory=Shell)
    cluster: str = ""
    interface: str = ""  # the network the nodes of a local cluster reach each other over
    python: str = sys.executable

    hyperpod: bool = False  # SageMaker HyperPod's Slurm: no gres, and srun replaces a broken node by itself

    name = "slurm"
    cannot: Mapping[str, str] = dataclasses.field(default_factory=lambda: CANNOT)

    def render(self, launch: Launch) -> Script:
        refuse_what_it_cannot(launch, self)
        if self.hyperpod and launch.gpus and not launch.exclusive:
            raise UserError(
                "HyperPod's Slurm does not count GPUs, so two jobs cannot share a node",
                where=f"queue {launch.queue}: exclusive",
                fix="leave `exclusive: false` out of the queue: jobs have whole nodes",
            )
        text = render_template(
            "slurm.sh.j2",
            launch,
            options=batch_options(launch, counts_gpus=not self.hyperpod),
            step_options=step_options(launch, self.hyperpod),
            rendezvous="127.0.0.1" if self.interface == "lo" else "",
            python="python3" if launch.container else self.python,
            saved=SAVED,
            health_command=f"{self.python} -m trainwright.health",
        )
        return Script("job.sbatch", text)

    def submit(self, launch: Launch, script: Script) -> str:
        """Hand the script to sbatch; what Slurm refuses is told with its reason, now and not in twenty minutes."""
        done = self.shell.run(["sbatch", "--parsable", str(launch.folder / script.filename)])
        if done.code != 0:
            raise self._refused(launch, done.err)
        return done.out.strip().split(";")[0]

    def jobs(self) -> list[JobStatus]:
        text = self.shell.output(["squeue", "--noheader", "--all", "-o", QUEUE_FORMAT])
        return [from_queue(line, self.cluster) for line in text.splitlines() if line.strip()]

    def state(self, job: str) -> JobStatus:
        """What became of a job, from a record that names it. That it has left the queue proves nothing."""
        shown = self.shell.run(["scontrol", "--oneliner", "show", "job", job])
        if shown.code == 0 and "JobId=" in shown.out:
            lines = [line for line in shown.out.splitlines() if "JobId=" in line]
            return combined(job, [from_show_job(line, self.cluster) for line in lines])
        found = self._accounted(job) or self._completed(job)
        if found:
            return found
        return JobStatus(
            job, "", "unknown", self.name, self.cluster, reason="neither the controller nor accounting knows it"
        )

    def cancel(self, job: str) -> None:
        done = self.shell.run(["scancel", job])
        if done.code != 0 and "Invalid job id" not in done.err:
            raise UserError(f"scancel {job} failed: {done.err.strip()}")

    def explain_pending(self, job: str) -> str:
        status = self.state(job)
        if status.state != "pending":
            return f"job {job} is not waiting: it is {status.state}"
        words = explain_reason(status.reason)
        down = self.shell.output(["sinfo", "-h", "-R", "-o", "%N: %E"]).splitlines() if "sinfo -R" in words else []
        return "\n  ".join([words, *(line.strip() for line in down)])

    @cached_property
    def settings(self) -> dict[str, str]:
        """slurm.conf as the controller runs it."""
        return settings_of(self.shell.output(["scontrol", "show", "config"]))

    def _accounted(self, job: str) -> JobStatus | None:
        if "slurmdbd" not in self.settings.get("AccountingStorageType", ""):
            return None
        text = self.shell.output(["sacct", "-X", "-n", "-P", "-j", job, "-o", ACCOUNTING])
        lines = [line for line in text.splitlines() if line.strip()]
        return combined(job, [from_accounting(line, self.cluster) for line in lines]) if lines else None

    def _completed(self, job: str) -> JobStatus | None:
        if "filetxt" not in self.settings.get("JobCompType", ""):
            return None
        text = self.shell.read(self.settings.get("JobCompLoc", "")).decode(errors="replace")
        found = [
            from_completion_file(line, self.cluster) for line in text.splitlines() if f"JobId={job} " in f"{line} "
        ]
        # A requeued job has a line for each of its lives; the last one counts.
        return combined(job, list({status.id: status for status in found}.values())) if found else None

    def _refused(self, launch: Launch, words: str) -> UserError:
        said = re.sub(r"sbatch: (error: )?", "", words).strip().splitlines()
        fix = ""
        if "invalid partition" in words:
            queues = self.shell.output(["sinfo", "--noheader", "-o", "%R"]).split()
            fix = did_you_mean(launch.queue, queues) or f"queues of this cluster: {', '.join(sorted(set(queues)))}"
        elif "node configuration is not available" in words:
            fix = "no node of the queue has that much: ask for fewer nodes, cpus or gpus (`trainwright status`)"
        elif "account" in words.lower():
            fix = "`sacctmgr show associations` lists the accounts and QoS you may use"
        return UserError(f"Slurm refused the job: {'; '.join(said)}", where=f"job {launch.name}", fix=fix)


def batch_options(job: Launch, counts_gpus: bool = True) -> list[str]:
    """The #SBATCH lines; what the user did not ask for is left to the cluster."""
    log = "job-%a.log" if job.array else "job.log"
    # Under torchrun Slurm starts one task a node, which gets the processors of all its ranks.
    tasks, cpus = (1, job.cpus * job.processes) if job.launcher == "torchrun" else (job.processes, job.cpus)
    size = [f"--nodes={job.nodes}", f"--ntasks-per-node={tasks}", f"--cpus-per-task={cpus}"]
    optional = {
        "--partition": job.queue,
        "--gres": f"gpu:{job.gpus}" if job.gpus and counts_gpus else "",
        "--time": clock(job.time) if job.time else "",
        "--account": job.account,
        "--qos": job.qos,
        "--constraint": job.constraint,
        "--reservation": job.reservation,
        "--array": job.array,
        "--dependency": f"afterok:{job.after}" if job.after else "",
    }
    options = size + [f"{name}={shlex.quote(value)}" for name, value in optional.items() if value]
    options += ["--exclusive"] if job.exclusive else []
    options += ["--kill-on-invalid-dep=yes"] if job.after else []
    if job.time and job.launcher == "srun":
        # To the ranks, not to this script: they save and say so by their exit status.
        options.append(f"--signal=USR1@{min(job.grace, job.time // 2)}")
    options.append("--requeue" if job.requeue else "--no-requeue")
    return [*options, "--open-mode=append", f"--output={shlex.quote(f'{job.folder}/{log}')}"]


def step_options(job: Launch, hyperpod: bool = False) -> list[str]:
    """What srun is told beside the ranks: on HyperPod to go on with a new node, and which image to run."""
    options = ["--auto-resume=1"] if hyperpod and job.requeue else []
    if not job.container:
        return options
    mounts = ",".join(mount if ":" in mount else f"{mount}:{mount}" for mount in (*job.mounts, str(job.folder)))
    return [*options, f"--container-image={job.container}", f"--container-mounts={mounts}"]


def clock(seconds: int) -> str:
    """Seconds as Slurm writes a time limit; never less than asked for."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    day = f"{days}-" if days else ""
    return f"{day}{hours:02d}:{minutes:02d}:{rest:02d}"
