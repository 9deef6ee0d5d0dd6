"""HYP: jobs on the Slurm of SageMaker HyperPod, which has no GPU resource."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.job_sizes import once
from trainwright.check.model import Command, File, Job
from trainwright.check.registry import Problem, problem, rule

_REFUSED = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")


@rule("HYP002", "error")
def hyperpod_refuses_gpu_requests(file: File) -> Iterator[Problem]:
    """HyperPod's Slurm rejects GPU requests and PMIx; its auto-resume flag works only there.

    The Slurm that HyperPod installs has no generic resource for GPUs, so `--gres=gpu` and `--gpus…` are rejected when
    the job is submitted, and it is built without PMIx: notes, because lifecycle scripts may set up the one and later
    versions have the other. A job there has whole nodes: `--exclusive` is enough. srun's
    `--auto-resume=1` exists on HyperPod alone. A script is taken as one for HyperPod when it uses that flag, its
    directories (/opt/sagemaker…) or says so in a comment.

    Why: sbatch rejects the job, or srun does after the nodes were allocated (55 USD per hour for each p5.48xlarge).

    Fix: remove the request and add `--exclusive`; drop `--mpi=pmix`; drop `--auto-resume` elsewhere.

    Source: hyperpod-precheck of awsome-distributed-ai.

    When to ignore: your lifecycle scripts configure gres.conf.
    """
    yield from once(p for job in file.jobs for p in _refused(file, job))
    scripts = {id(job.commands): job.commands for job in file.jobs if _is_on_hyperpod(file, job)}
    yield from once(p for commands in scripts.values() for p in _of_steps(commands))


def _is_on_parallelcluster(file: File) -> bool:
    return "/opt/parallelcluster" in file.text and "/opt/sagemaker" not in file.text


def _is_on_hyperpod(file: File, job: Job) -> bool:
    elsewhere = job.extra.get("auto_resume") is not None and file.derived(_is_on_parallelcluster)
    return job.scheduler == "slurm" and job.platform == "hyperpod" and not elsewhere


def _refused(file: File, job: Job) -> Iterator[Problem]:
    resume = job.extra.get("auto_resume")
    if job.scheduler == "slurm" and resume is not None and file.derived(_is_on_parallelcluster):
        yield problem(
            resume.key or resume.span, "--auto-resume exists on HyperPod only, not on ParallelCluster", "remove it"
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
