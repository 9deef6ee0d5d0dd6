"""JOB: what a job takes of each node. GPUs, network cards, processors."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check.job_sizes import is_torchrun, multi_node, once, processes, type_of
from trainwright.check.model import File, Job, known
from trainwright.check.registry import Problem, problem, rule


@rule("JOB001", "error")
def gpus_match_the_machine(file: File) -> Iterator[Problem]:
    """GPUs and EFA cards asked for on a node must be those the node has.

    The counts stand in many places (the request, GPUS_PER_NODE, --nproc_per_node, slots of an MPIJob, the EFA
    resource) and are edited by hand for each instance type. They must not exceed the machine, must not contradict one
    another, and a job with every GPU of a node should have every EFA card too. One torchrun a node starts all its
    processes, so it wants one task a node.

    Why: too many processes share a GPU and run out of memory or hang in NCCL; too few EFA cards leave most of the
    network unused; several torchruns a node fight over the same ports and GPUs.

    Fix: write the counts of the instance type (`trainwright catalog show p5.48xlarge`), the same everywhere.

    Source: EC2 instance types; the hand-edited counts of public launchers (awsome-distributed-ai).
    """
    yield from once(p for job in file.jobs for p in _counts(job))


def _counts(job: Job) -> Iterator[Problem]:
    type_ = type_of(job)
    if type_ is not None and not type_.is_neuron:
        found = [*_against_machine(job, type_), *_cards(job, type_)]
        yield from found
        if found:
            return
    yield from _against_each_other(job)
    yield from _torchrun_tasks(job)
    ranks, nodes, slots = job.extra.get("ranks"), known(job.nodes), known(job.processes_per_node)
    if ranks is not None and ranks.known and nodes and slots and int(ranks.value) > nodes * slots:
        yield problem(
            ranks,
            f"{ranks.value} ranks, but {nodes} workers with {slots} slots each hold {nodes * slots}",
            f"start {nodes * slots} ranks, or add workers",
        )


def _against_machine(job: Job, type_: InstanceType) -> Iterator[Problem]:
    stated = [*job.gpus_per_node, *([job.processes_per_node] if job.processes_per_node is not None else [])]
    for value in stated:
        if value.known and value.value > max(type_.gpus, 0) and (type_.gpus or value in job.gpus_per_node):
            yield problem(
                value,
                f"{value.value} GPUs a node, but {type_.name} has {type_.gpus or 'none'}",
                f"write {type_.gpus}" if type_.gpus else "choose an instance type with GPUs",
            )
        elif value.known and 0 < value.value < type_.gpus and multi_node(job) and known(job.exclusive):
            yield problem(
                value,
                f"{value.value} of the {type_.gpus} GPUs of {type_.name}, on nodes the job has to itself",
                f"write {type_.gpus}; the other GPUs are paid for and idle",
                level="warning",
            )


def _cards(job: Job, type_: InstanceType) -> Iterator[Problem]:
    every_gpu = any(value.known and value.value == type_.gpus for value in job.gpus_per_node)
    for value in job.efa_per_node:
        if not value.known or value.value == type_.efa_cards:
            continue
        if value.value > type_.efa_cards:
            cards = f"{type_.efa_cards}" if type_.efa_cards else "none"
            message = f"{value.value} EFA cards a node, but {type_.name} has {cards}"
        elif every_gpu:
            message = f"every GPU of {type_.name}, but only {value.value} of its {type_.efa_cards} EFA cards"
        else:
            continue
        yield problem(value, message, f"write {type_.efa_cards}")


def _against_each_other(job: Job) -> Iterator[Problem]:
    if not job.gpus_per_node or not job.gpus_per_node[0].known:
        return
    asked = job.gpus_per_node[0]
    started = [*job.gpus_per_node[1:], *([job.processes_per_node] if job.processes_per_node is not None else [])]
    for value in started:
        if not value.known or value.span == asked.span:
            continue
        if value.value > asked.value:
            yield problem(
                value,
                f"{value.value} GPUs a node are used, but {asked.value} are asked for on line {asked.span.line}",
                "make the two equal",
            )
        elif 1 < value.value < asked.value:
            yield problem(
                value,
                f"{value.value} GPUs a node are used of the {asked.value} asked for on line {asked.span.line}",
                "make the two equal; the other GPUs are idle",
                level="warning",
            )


def _torchrun_tasks(job: Job) -> Iterator[Problem]:
    tasks, ranks = known(job.tasks_per_node), known(job.processes_per_node)
    launch = job.launch
    if launch is None or not is_torchrun(launch) or not launch.inside_srun or job.tasks_per_node is None:
        return
    if tasks is not None and ranks is not None and tasks > 1 and ranks > 1:
        yield problem(
            job.tasks_per_node,
            f"{tasks} tasks a node each start a torchrun with {ranks} processes: {tasks * ranks} processes a node",
            "use one task a node (--ntasks-per-node=1); torchrun starts the processes",
        )


@rule("JOB006", "warning")
def processors_suffice(file: File) -> Iterator[Problem]:
    """The processes of a node must fit its CPUs.

    Every rank starts its own loader processes, so their number multiplies by the ranks of the node. And the CPUs that
    the job asks for must cover at least one for each rank.

    Why: more busy processes than CPUs wait for one another; GPUs then wait for data.

    Fix: workers × ranks at most the vCPUs of the node; --cpus-per-task × tasks at least the ranks.

    Source: PyTorch warns when a DataLoader has more workers than CPUs; 64 workers on the 48 vCPUs of a
    g4dn.12xlarge (accelerate-pcluster-distributed-training).
    """
    yield from once(p for job in file.jobs for p in _processors(job))


def _processors(job: Job) -> Iterator[Problem]:
    ranks, workers, type_ = known(processes(job)), known(job.workers), type_of(job)
    cpus, tasks = known(job.cpus_per_task), known(job.tasks_per_node) or 1
    granted = cpus * tasks if cpus else None
    if granted is not None and ranks is not None and job.cpus_per_task is not None and granted < ranks:
        how = f"{cpus} CPUs a task × {tasks} tasks" if tasks > 1 else f"{cpus} CPU{'s' if cpus != 1 else ''}"
        yield problem(
            job.cpus_per_task,
            f"{how} a node for {ranks} ranks: not one CPU for each",
            f"ask for all {type_.vcpus} CPUs of {type_.name}" if type_ is not None else "ask for all CPUs of the node",
        )
    elif granted is not None and ranks is None and job.cpus_per_task is not None and granted < _asked(job):
        yield problem(
            job.cpus_per_task,
            f"{granted} CPUs a node for {_asked(job)} GPUs: not one for the process of each",
            "ask for all CPUs of the node",
        )
    elif workers and ranks and job.workers is not None:
        limit, of = (granted, "CPUs the job asks for") if granted else (type_.vcpus if type_ else None, "vCPUs")
        if limit is not None and workers * ranks > limit:
            place = f" of {type_.name}" if of == "vCPUs" and type_ is not None else ""
            yield problem(
                job.workers,
                f"{workers} loader processes × {ranks} ranks = {workers * ranks} a node, over the {limit} {of}{place}",
                f"use at most {max(1, limit // ranks)} a rank",
            )


def _asked(job: Job) -> int:
    return max((value.value for value in job.gpus_per_node if value.known), default=0)
