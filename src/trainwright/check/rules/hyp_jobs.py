"""HYP: jobs on the Slurm of SageMaker HyperPod, which has no GPU resource."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.slurm_platforms import parallelcluster_evidence
from trainwright.check.model import Command, File, Job
from trainwright.check.registry import Problem, problem, rule

_REFUSED = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")


@rule("HYP002", "error")
def hyperpod_refuses_gpu_requests(file: File) -> Iterator[Problem]:
    """HyperPod's Slurm rejects GPU requests and PMIx; its auto-resume flag works only there.

    `srun --auto-resume=1` exists on HyperPod alone. It is an error where the script says that its cluster is a
    ParallelCluster: in a comment (`# our ParallelCluster, queue train`) or by a path below /opt/parallelcluster. It is
    a warning where a cluster file of ParallelCluster lies in the repository and nothing there speaks of HyperPod.
    Comments that compare clusters, and the flag in a branch, are not reported.

    The rest are notes, on scripts for HyperPod: those that use the flag without such a sign of ParallelCluster, use
    its directories (/opt/sagemaker…) or say so in a comment. The Slurm that HyperPod installs has no generic resource
    for GPUs, so `--gres=gpu` and `--gpus…` are rejected when the job is submitted, unless lifecycle scripts set it
    up. It was built without PMIx, which later versions have. A job there has whole nodes: `--exclusive` is enough.

    Why: sbatch rejects the job, or srun does after the nodes were allocated (55 USD per hour for each p5.48xlarge).

    Fix: remove the request and add `--exclusive`; drop `--mpi=pmix`; drop `--auto-resume` elsewhere.

    Source: hyperpod-precheck of awsome-distributed-ai; srun's manual, which has no such option.

    When to ignore: your lifecycle scripts configure gres.conf.
    """
    yield from once(p for job in file.jobs for p in _refused(file, job))
    scripts = {id(job.commands): job.commands for job in file.jobs if _is_on_hyperpod(file, job)}
    yield from once(p for commands in scripts.values() for p in _of_steps(commands))


def _is_on_hyperpod(file: File, job: Job) -> bool:
    """By what the script says, or else by the flag that exists there alone."""
    flag = job.extra.get("auto_resume") is not None
    shown = job.platform == "hyperpod" or (flag and not file.derived(parallelcluster_evidence))
    return job.scheduler == "slurm" and shown


def _refused(file: File, job: Job) -> Iterator[Problem]:
    resume = job.extra.get("auto_resume")
    evidence = file.derived(parallelcluster_evidence) if job.scheduler == "slurm" and resume is not None else ""
    if resume is not None and evidence:
        yield problem(
            resume.key or resume.span,
            "--auto-resume exists on HyperPod only, not on ParallelCluster: srun refuses it",
            "remove it",
            level=None if evidence == "script" else "warning",
            why=reasons.NO_AUTO_RESUME,
        )
    if not _is_on_hyperpod(file, job):
        return
    for name in _REFUSED:
        value = job.directives.get(name)
        if value is not None and (name != "gres" or "gpu" in value.value):
            yield problem(
                value.key or value.span,
                f"--{name} requests GPUs, which HyperPod's Slurm does not track unless gres.conf is set up: the job is "
                "rejected",
                "remove it"
                if job.exclusive is not None or "exclusive" in job.directives
                else "write --exclusive instead",
                level="info",  # lifecycle scripts may set it up
            )


def _of_steps(commands: list[Command]) -> Iterator[Problem]:
    """What the steps of a script ask for; all its jobs have the same ones."""
    for command in commands:
        if command.program != "srun":
            continue
        mpi = command.options.get("mpi")
        if mpi is not None and mpi.value.startswith("pmix"):
            yield problem(
                mpi.key or mpi.span,
                "HyperPod's own Slurm is built without PMIx",
                "remove it, or start the ranks with torchrun",
                level="info",  # as AWS's hyperpod-precheck says, of the versions that it knows
            )
        for name in _REFUSED:
            value = command.options.get(name.replace("-", "_"))
            if value is not None:
                yield problem(
                    value.key or value.span,
                    f"--{name} requests GPUs, which HyperPod's Slurm does not track unless gres.conf is set up: srun "
                    "rejects it",
                    "remove it; the job has whole nodes",
                    level="info",
                )
