"""JOB: the CPUs of a node, and the processes that share them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import once, processes, type_of
from trainwright.check.launches.launchers import is_torchrun, own_options
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import File, Job, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule

_OTHER_COUNTS = {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "cpus-per-gpu", "mincpus", "gpus-per-task"}
_MOST_CPUS = 448  # of any common node


@rule("JOB006", "warning")
def processors_suffice(file: File) -> Iterator[Problem]:
    """The processes of a node must fit its CPUs.

    Every rank starts its own data loader workers, so their number multiplies by the ranks of the node. The CPUs that
    the job requests must cover at least one per rank; a job with whole nodes (`--exclusive`) has all of theirs.
    OMP_NUM_THREADS counts the threads of each rank.

    Why: with more busy processes than CPUs they wait for each other, and the GPUs wait for data. A published
    launcher gives 5 CPUs to 8 ranks and their 16 loader workers.

    Fix: keep workers × ranks at or below the vCPUs of the node, and --cpus-per-task × tasks at or above the ranks.

    Source: PyTorch warns when a DataLoader has more workers than CPUs; 64 workers on the 48 vCPUs of a g4dn.12xlarge
    (accelerate-pcluster-distributed-training).

    When to ignore: the workers mostly wait for the network and a measurement shows that they do not slow each other
    down.
    """
    yield from once(p for job in file.jobs for p in _processors(file, job))


def _processors(file: File, job: Job) -> Iterator[Problem]:
    ranks, workers, type_ = stated(processes(job)), stated(job.workers), type_of(job)
    granted = _granted(job)
    open_ = _if_it_runs(job)
    if granted is not None and ranks is not None and job.cpus_per_task is not None and granted < ranks:
        yield problem(
            job.cpus_per_task,
            f"{granted} CPU{'s' if granted != 1 else ''} per node for {ranks} ranks: less than one CPU per rank",
            f"request at least {ranks} per node, better several per rank",
            level=open_,
        )
    elif granted is not None and ranks is None and job.cpus_per_task is not None and granted < _requested(job):
        yield problem(
            job.cpus_per_task,
            f"{granted} CPU{'s' if granted != 1 else ''} per node for {_requested(job)} GPUs: less than one per GPU "
            "process",
            f"request at least {_requested(job)} per node, better several per GPU",
            level=open_ if _one_per_gpu(job) else "info",
        )
    yield from _threads(job, ranks, granted or (type_.vcpus if type_ is not None else None))
    if workers and ranks and job.workers is not None and (granted is None or granted >= ranks):
        limit, of = (granted, "CPUs the job requests") if granted else (type_.vcpus if type_ else None, "vCPUs")
        if limit is not None and workers * ranks > limit:
            place = f" of {type_.name}" if of == "vCPUs" and type_ is not None else ""
            yield problem(
                job.workers,
                f"{workers} loader workers × {ranks} rank{'s' if ranks > 1 else ''} = {workers * ranks} per node, over "
                f"the {limit} {of}{place}",
                f"use at most {max(1, limit // ranks)} per rank",
                level=open_ if _many(job, workers * ranks, limit) and not _divides(file, job) else "info",
            )


def _granted(job: Job) -> int | None:
    """CPUs per node that a batch script requests, or a pod's limit; None where it says so in other ways, or gets whole
    nodes."""
    each, tasks = stated(job.cpus_per_task), stated(job.tasks_per_node)
    runner = job.launch.runner if job.launch is not None else None
    if not each or job.directives.keys() & _OTHER_COUNTS or (known(job.exclusive) and not _by_srun(job)):
        return None
    if job.scheduler != "slurm":
        return each
    if runner is not None and runner.options.keys() & {"c", "cpus_per_task", "n", "ntasks"}:
        return None  # a step with numbers of its own
    if tasks is None and "ntasks" in job.directives:
        total = stated(whole(job.directives["ntasks"]))
        return each * total if total is not None else None  # as many, if all of them are on one node
    return each * (tasks or 1)


def _by_srun(job: Job) -> bool:
    launch = job.launch
    return launch.inside_srun if launch is not None else any(command.inside_srun for command in job.commands)


def _if_it_runs(job: Job) -> Level | None:
    """A note in a branch that may not run, and on whole nodes, where srun's tasks get all CPUs or those of
    --cpus-per-task: that depends on the version of Slurm."""
    return "info" if known(job.exclusive) or (job.launch is not None and job.launch.branch) else None


def _many(job: Job, workers: int, limit: int) -> bool:
    """Whether the workers are clearly too many, and those of data loaders: tools call their processes so too."""
    named = job.workers is not None and job.launch is not None and "workers" in job.launch.options
    return workers * 4 >= limit * 5 and not (named and known(processes(job)) == 1)


def _divides(file: File, job: Job) -> bool:
    """Whether the program divides the number by the ranks, as PyTorch's ImageNet example does."""
    text = program_text(file, job.launch) if job.launch is not None else None
    return text is not None and (not text or re.search(r"workers\b[^\n]*//?", text) is not None)


def _threads(job: Job, ranks: int | None, cpus: int | None) -> Iterator[Problem]:
    """OMP_NUM_THREADS counts the threads of one rank, not those of the node."""
    for variable in job.script.exports_of("OMP_NUM_THREADS") if job.script is not None else ():
        threads = whole(variable.value)
        if threads is None or not threads.known or not ranks or ranks < 2:
            continue
        if threads.value * ranks > 2 * (cpus or _MOST_CPUS):
            of = f"its {cpus} CPUs" if cpus else "the CPUs of any node"
            yield problem(
                threads,
                f"{threads.value} threads × {ranks} ranks = {threads.value * ranks:,} per node, over {of}",
                f"write {max(1, (cpus or _MOST_CPUS) // (2 * ranks))} or fewer: OMP_NUM_THREADS counts the threads of "
                "one rank",
                level=None if threads.value * ranks > _MOST_CPUS else "info",  # torch's own threads mostly wait
            )


def _one_per_gpu(job: Job) -> bool:
    """Whether the launcher starts a process per GPU; `python train.py` may be one process for all."""
    if job.launch is None:
        return False
    own = own_options(job.launch)
    if is_torchrun(job.launch):
        return known(own.get("nproc_per_node")) in ("gpu", "auto")
    chosen = {"config_file", "num_processes", "num_gpus", "include", "i", "exclude", "e", "cpu", "use_cpu", "gpu_ids"}
    return job.launch.program in ("accelerate", "deepspeed") and not own.keys() & chosen


def _requested(job: Job) -> int:
    return max((value.value for value in job.gpus_per_node if value.known), default=0)
