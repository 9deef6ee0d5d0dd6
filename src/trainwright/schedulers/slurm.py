"""The Slurm scheduler: one sbatch script per job, submitted and followed on the head node or over ssh."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
import time
from collections.abc import Iterator
from functools import cached_property

from trainwright.errors import UserError, did_you_mean
from trainwright.schedulers.base import SAVED, JobIdentity, JobStatus, Launch, Script, assert_honoured
from trainwright.schedulers.logs import folder_logs
from trainwright.schedulers.render import render_template
from trainwright.schedulers.secret_values import from_shell, run_with
from trainwright.schedulers.shell import Done, Shell, Unreachable
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

ACCOUNTING = "JobID,State,ExitCode,Submit,Start,End,NNodes,NodeList,Partition,JobName"


@dataclasses.dataclass(frozen=True)
class SlurmScheduler:
    """Slurm 22.05 and later, reached through a shell."""

    shell: Shell = dataclasses.field(default_factory=Shell)
    cluster: str = ""
    interface: str = ""  # the network the nodes of a local cluster reach each other over
    python: str = sys.executable
    hyperpod: bool = False  # SageMaker HyperPod's Slurm: no gres, and srun replaces a broken node by itself
    start: str = ""  # which start of a local cluster: its job ids begin at 1 again with every start

    name = "slurm"
    ships = True

    @property
    def at(self) -> dict[str, str]:
        return {"start": self.start} if self.start else {}

    def render(self, launch: Launch) -> Script:
        assert_honoured(launch, self.name)
        assert launch.exclusive or not (self.hyperpod and launch.gpus), "check: SPC006"
        python = "python3" if launch.venv else self.python
        text = render_template(
            "slurm.sh.j2",
            launch,
            options=batch_options(launch, counts_gpus=not self.hyperpod),
            step_options=step_options(launch, self.hyperpod),
            rendezvous="127.0.0.1" if self.interface == "lo" else "",
            python="python3" if launch.container else python,
            saved=SAVED,
            margin=_margin(launch),
            health_command=f"{python} -m trainwright.health",
        )
        return Script("job.sbatch", text)

    def submit(self, launch: Launch, script: Script) -> JobIdentity:
        """Hand the script to sbatch; what Slurm refuses is reported with its reason, before the job is queued.

        The run's name becomes the job's, so that every record of Slurm says whose job it is."""
        run = launch.folder.name
        words = ["sbatch", "--parsable", f"--job-name={run}", str(launch.folder / script.filename)]
        done = run_with(self.shell, words, from_shell(launch))  # secrets travel in the job's environment
        if done.code != 0:
            raise self._refused(launch, done.err)
        return JobIdentity(done.out.strip().split(";")[0], run, self.start, time.time())

    def jobs(self) -> list[JobStatus]:
        done = self._answer(["squeue", "--noheader", "--all", "-o", QUEUE_FORMAT])
        return [from_queue(line, self.cluster) for line in done.out.splitlines() if line.strip()]

    def state(self, job: JobIdentity) -> JobStatus:
        """What became of a job, from a record that names it. That it has left the queue proves nothing."""
        shown = self._answer(["scontrol", "--oneliner", "show", "job", job.id], but="Invalid job id")
        lines = [line for line in shown.out.splitlines() if "JobId=" in line]
        status = _own(job, [from_show_job(line, self.cluster) for line in lines])
        status = status or self._accounted(job) or self._completed(job)
        reason = "neither the controller nor accounting knows it"
        return status or JobStatus(job.id, job.name, "unknown", self.name, self.cluster, reason=reason)

    def cancel(self, job: JobIdentity) -> None:
        """End the job of that number, if it also has that name."""
        self._answer(["scancel", *([f"--name={job.name}"] if job.name else []), job.id], but="Invalid job id")

    def signal(self, job: JobIdentity, name: str) -> None:
        """Send a signal to the ranks, and not to the job's script."""
        self._answer(["scancel", f"--signal={name}", *([f"--name={job.name}"] if job.name else []), job.id])

    def logs(
        self, job: JobIdentity, folder: str, seen: dict[str, str], rank: int | None = None
    ) -> Iterator[tuple[str, str]]:
        return folder_logs(self.shell, folder, seen, rank)

    def explain_pending(self, job: JobIdentity) -> str:
        status = self.state(job)
        if status.state != "pending":
            return f"job {job.id} is not waiting: it is {status.state}"
        words = explain_reason(status.reason)
        down = self.shell.output(["sinfo", "-h", "-R", "-o", "%N: %E"]).splitlines() if "sinfo -R" in words else []
        return "\n  ".join([words, *(line.strip() for line in down)])

    @cached_property
    def settings(self) -> dict[str, str]:
        """slurm.conf as the controller runs it."""
        return settings_of(self._answer(["scontrol", "show", "config"]).out)

    def _answer(self, command: list[str], but: str = "") -> Done:
        """What the controller says; no answer is an error of its own, for it must never read as "no job"."""
        done = self.shell.run(command)
        if done.code != 0 and not (but and but in done.err):
            place = f"{self.cluster} ({self.shell.host})" if self.shell.remote else self.cluster or "Slurm"
            words = done.err.strip().splitlines() or [f"{command[0]} ended with status {done.code}"]
            raise Unreachable(
                f"cannot reach {place}: {words[-1]}",
                fix="`trainwright status` shows the cluster; `trainwright up SPEC` restarts a local one's daemons",
            )
        return done

    def _accounted(self, job: JobIdentity) -> JobStatus | None:
        if "slurmdbd" not in self.settings.get("AccountingStorageType", ""):
            return None
        text = self.shell.output(["sacct", "-X", "-n", "-P", "-j", job.id, "-o", ACCOUNTING])
        return _own(job, [from_accounting(line, self.cluster) for line in text.splitlines() if line.strip()])

    def _completed(self, job: JobIdentity) -> JobStatus | None:
        if "filetxt" not in self.settings.get("JobCompType", ""):
            return None
        text = self.shell.read(self.settings.get("JobCompLoc", "")).decode(errors="replace")
        lines = [line for line in text.splitlines() if f"JobId={job.id} " in f"{line} "]
        statuses = [from_completion_file(line, self.cluster) for line in lines]
        # A requeued job has a line for each of its starts; the last one counts.
        return _own(job, list({status.id: status for status in statuses}.values()))

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


def _own(job: JobIdentity, statuses: list[JobStatus]) -> JobStatus | None:
    """One status for the records of a job and its array tasks, without those of another job of the same number."""
    own = [status for status in statuses if not job.name or status.name == job.name]
    return combined(job.id, own) if own else None


def batch_options(job: Launch, counts_gpus: bool = True) -> list[str]:
    """The #SBATCH lines; what the user did not ask for is left to the cluster."""
    log = "job-%a.log" if job.array else "job.log"
    # Under torchrun Slurm starts one task per node, which gets the processors of all its ranks.
    tasks, cpus = (job.processes, job.cpus) if job.launcher == "srun" else (1, job.cpus * job.processes)
    size = [f"--nodes={job.nodes}", f"--ntasks-per-node={tasks}", *([f"--cpus-per-task={cpus}"] if cpus else [])]
    # Instance types are counted in cores. Where Slurm counts hardware threads, this gives each rank whole cores, all of
    # the node's cores are shared out, and each rank is bound to its own.
    size += ["--hint=nomultithread"] if job.gpus and cpus and job.exclusive else []
    optional = {
        # `default` is no name that a partition can have (slurm.conf keeps it for defaults): the cluster's own choice.
        "--partition": job.queue if job.queue != "default" else "",
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
    # To the ranks, not to this script: they save and say so by their exit status. The limit may be the partition's.
    options.append(f"--signal=USR1@{min(job.grace, job.time // 2) if job.time else job.grace}")
    options.append("--requeue" if job.requeue else "--no-requeue")
    return [*options, "--open-mode=append", f"--output={shlex.quote(f'{job.folder}/{log}')}"]


def step_options(job: Launch, hyperpod: bool = False) -> list[str]:
    """Further options of srun: on HyperPod to continue with a new node, and which image to run."""
    options = ["--auto-resume=1"] if hyperpod and job.requeue else []
    if not job.container:
        return options
    mounts = ",".join(mount if ":" in mount else f"{mount}:{mount}" for mount in (*job.mounts, str(job.folder)))
    return [*options, f"--container-image={pyxis_image(job.container)}", f"--container-mounts={mounts}"]


def pyxis_image(image: str) -> str:
    """An image as enroot names it: the registry is followed by `#`; without one it asks Docker Hub."""
    registry, slash, rest = image.partition("/")
    named = slash and "#" not in image and "://" not in image and ("." in registry or ":" in registry)
    return f"{registry}#{rest}" if named and registry not in ("", ".", "..") else image


def clock(seconds: int) -> str:
    """Seconds as Slurm writes a time limit; never less than asked for."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    day = f"{days}-" if days else ""
    return f"{day}{hours:02d}:{minutes:02d}:{rest:02d}"


def _margin(launch: Launch) -> int:
    """Seconds before the time limit at which ranks that ignore the notice are stopped. One that saves on SIGTERM ends
    its step first, which may take a minute, and then writes."""
    longest = 300 if launch.saves_on_term else 60
    return min(longest, launch.time // 4) if launch.time else longest
