"""JOB: what a job uses on each node: GPUs, EFA cards, CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.job_sizes import is_torchrun, multi_node, once, processes, type_of
from trainwright.check.model import File, Job, Value, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule

_MOST_GPUS, _MOST_CPUS = 16, 448  # of one node with GPUs and of any common one


@rule("JOB001", "error")
def gpus_match_the_machine(file: File) -> Iterator[Problem]:
    """GPU and EFA counts of a job must match the instance type and each other.

    The counts appear in many places (the resource request, GPUS_PER_NODE, --nproc_per_node, slots of an MPIJob, the EFA
    resource) and are edited by hand for each instance type. They must not exceed what the instance has, must not
    contradict each other or CUDA_VISIBLE_DEVICES, and a job that uses every GPU of a node should use every EFA card
    too. torchrun starts all processes of a node, so it runs as one task per node; accelerate's --num_processes counts
    those of all machines.

    Why: too many processes share a GPU and run out of memory or hang in NCCL; too few EFA cards leave most of the
    network unused (one of the 32 of a p5.48xlarge has 100 of 3,200 Gbps); several torchruns on one node compete for the
    same ports and GPUs.

    Fix: use the counts of the instance type (`trainwright catalog show p5.48xlarge`), the same everywhere.

    Source: EC2 instance types; hand-edited counts in public launchers (awsome-distributed-ai).

    When to ignore: the job deliberately uses part of a node, for example a debug run.
    """
    yield from once(p for job in file.jobs for p in _counts(job))


def _counts(job: Job) -> Iterator[Problem]:
    type_ = type_of(job)
    if type_ is not None and not type_.is_neuron:
        mismatches = [*_against_machine(job, type_), *_cards(job, type_)]
        yield from mismatches
        if mismatches:
            return
    yield from _against_each_other(job)
    yield from _torchrun_tasks(job)
    yield from _deepspeed_gpus(job)
    yield from _visible(job)
    ranks, nodes, slots = job.extra.get("ranks"), known(job.nodes), known(job.processes_per_node)
    if ranks is not None and ranks.known and nodes and slots and int(ranks.value) > nodes * slots:
        yield problem(
            ranks,
            f"{ranks.value} ranks, but {nodes} workers with {slots} slots each hold {nodes * slots}",
            f"start {nodes * slots} ranks, or add workers",
        )


def _visible(job: Job) -> Iterator[Problem]:
    """CUDA_VISIBLE_DEVICES of the script against the processes that each node starts."""
    assigned = job.script.assignments if job.script is not None else []
    lists = [a.value for a in assigned if a.name == "CUDA_VISIBLE_DEVICES"]
    started, launch = job.processes_per_node, job.launch
    if len(lists) != 1 or started is None or not started.known or launch is None or not is_torchrun(launch):
        return
    devices = lists[0].value.strip("'\" ")
    if not lists[0].known or not re.fullmatch(r"\d+(,\d+)*", devices) or lists[0].span.line >= launch.span.line:
        return
    count = devices.count(",") + 1
    if started.value > count and not launch.conditional:
        yield problem(
            started,
            f"{started.value} processes per node, but CUDA_VISIBLE_DEVICES shows {count} GPU{'s' if count > 1 else ''} "
            f"(line {lists[0].span.line})",
            f"start {count}, or list every GPU",
        )


def _deepspeed_gpus(job: Job) -> Iterator[Problem]:
    """The deepspeed launcher counts the GPUs of one node, where others count those of all nodes."""
    launch = job.launch
    if launch is None or launch.program != "deepspeed":
        return
    gpus, nodes = whole(launch.options.get("num_gpus")), whole(launch.options.get("num_nodes"))
    if gpus is None or nodes is None or not gpus.known or not nodes.known or gpus.value <= _MOST_GPUS:
        return
    yield problem(
        gpus,
        f"--num_gpus counts the GPUs of one node, and no node has {gpus.value}",
        f"write --num_gpus={gpus.value // nodes.value}" if nodes.value > 1 else "write the GPUs of one node",
    )


def _against_machine(job: Job, type_: InstanceType) -> Iterator[Problem]:
    stated = [*job.gpus_per_node, *([job.processes_per_node] if job.processes_per_node is not None else [])]
    for value in stated:
        if job.scheduler == "spec" and known(value) is not None and value.value > type_.gpus:
            continue  # SPC003 says so
        if value.known and value.value > max(type_.gpus, 0) and (type_.gpus or value in job.gpus_per_node):
            yield problem(
                value,
                f"{value.value} GPUs per node, but {type_.name} has {type_.gpus or 'none'}",
                f"write {type_.gpus}" if type_.gpus else "choose an instance type with GPUs",
            )
        elif value.known and 0 < value.value < type_.gpus and multi_node(job) and known(job.exclusive):
            yield problem(
                value,
                f"{value.value} of the {type_.gpus} GPUs of {type_.name}, on nodes that the job has exclusively",
                f"write {type_.gpus}; the other GPUs are paid for and idle",
                level="info",
                why=reasons.IDLE_GPUS,
            )


def _cards(job: Job, type_: InstanceType) -> Iterator[Problem]:
    every_gpu = any(value.known and value.value == type_.gpus for value in job.gpus_per_node)
    for value in job.efa_per_node:
        if not value.known or value.value == type_.efa_cards:
            continue
        if value.value > type_.efa_cards:
            cards = f"{type_.efa_cards}" if type_.efa_cards else "none"
            message = f"{value.value} EFA cards per node, but {type_.name} has {cards}"
        elif every_gpu:
            message = f"every GPU of {type_.name}, but only {value.value} of its {type_.efa_cards} EFA cards"
        else:
            continue
        yield problem(value, message, f"write {type_.efa_cards}")


def _places_processes(job: Job) -> bool:
    """Whether mpirun is told how many processes a node gets (`--map-by ppr:1:node`), whatever its slots."""
    directives = {name for name, _ in job.script.directives} if job.script is not None else set()
    if {"ntasks", "ntasks-per-node"} <= directives:  # the first wins, and the second is a maximum
        return True
    return any("ppr:" in word.value for command in job.commands for word in command.words)


def _against_each_other(job: Job) -> Iterator[Problem]:
    if not job.gpus_per_node or not job.gpus_per_node[0].known or _places_processes(job):
        return
    asked = job.gpus_per_node[0]
    started = [*job.gpus_per_node[1:], *([job.processes_per_node] if job.processes_per_node is not None else [])]
    directives = {value.span for value in job.directives.values()}
    for value in started:
        if not value.known or value.span == asked.span:
            continue
        if _of_one_machine(job, value, asked):
            yield problem(
                value,
                f"--num_processes counts all {known(job.nodes)} machines together: {value.value} of the {asked.value} "
                f"GPUs of each are used",
                f"write --num_processes={asked.value * (known(job.nodes) or 1)}",
                level="warning",
            )
        elif {value.span, asked.span} <= directives and value.value != asked.value:
            yield problem(
                value,
                f"{value.value} GPUs per node are requested here, and {asked.value} on line {asked.span.line}",
                "keep one of the two requests",
                level="warning",
                why=reasons.TWO_REQUESTS,
            )
        elif value.value > asked.value:
            yield problem(
                value,
                f"{value.value} GPUs per node are used, but {asked.value} are requested on line {asked.span.line}",
                "make the two equal",
            )
        elif 1 < value.value < asked.value:
            yield problem(
                value,
                f"{value.value} GPUs per node are used of the {asked.value} requested on line {asked.span.line}",
                "make the two equal; the other GPUs are idle",
                level="info",
                why=reasons.IDLE_GPUS,
            )


def _of_one_machine(job: Job, value: Value[int], asked: Value[int]) -> bool:
    """Whether accelerate on several machines gets the number of processes of one."""
    launch = job.launch
    if launch is None or launch.program != "accelerate" or value is not job.processes_per_node or not multi_node(job):
        return False
    return "num_machines" in launch.options and stated(whole(launch.options.get("num_processes"))) == asked.value


def _torchrun_tasks(job: Job) -> Iterator[Problem]:
    tasks, ranks = known(job.tasks_per_node), known(job.processes_per_node)
    launch = job.launch
    if launch is None or not is_torchrun(launch) or not launch.inside_srun or job.tasks_per_node is None:
        return
    if whole(job.directives.get("ntasks")) is not None and "ntasks-per-node" in job.directives:
        return  # the first wins, and the second is a maximum
    if tasks is not None and ranks is not None and tasks > 1 and ranks > 1:
        yield problem(
            job.tasks_per_node,
            f"{tasks} tasks per node each start a torchrun with {ranks} processes: {tasks * ranks} processes per node",
            "use one task per node (--ntasks-per-node=1); torchrun starts the processes",
        )


@rule("JOB006", "warning")
def processors_suffice(file: File) -> Iterator[Problem]:
    """The processes of a node must fit its CPUs.

    Every rank starts its own data loader workers, so their number multiplies by the ranks of the node. The CPUs that
    the job requests must cover at least one per rank. OMP_NUM_THREADS counts the threads of each rank.

    Why: with more busy processes than CPUs they wait for each other, and the GPUs wait for data. A published
    launcher gives 5 CPUs to 8 ranks and their 16 loader workers.

    Fix: keep workers × ranks at or below the vCPUs of the node, and --cpus-per-task × tasks at or above the ranks.

    Source: PyTorch warns when a DataLoader has more workers than CPUs; 64 workers on the 48 vCPUs of a g4dn.12xlarge
    (accelerate-pcluster-distributed-training).

    When to ignore: the workers mostly wait for the network and a measurement shows that they do not slow each other
    down.
    """
    yield from once(p for job in file.jobs for p in _processors(job))


def _processors(job: Job) -> Iterator[Problem]:
    ranks, workers, type_ = known(processes(job)), known(job.workers), type_of(job)
    cpus, tasks = known(job.cpus_per_task), known(job.tasks_per_node) or 1
    granted = cpus * tasks if cpus else None
    if granted is not None and ranks is not None and job.cpus_per_task is not None and granted < ranks:
        how = f"{cpus} CPUs per task × {tasks} tasks" if tasks > 1 else f"{cpus} CPU{'s' if cpus != 1 else ''}"
        yield problem(
            job.cpus_per_task,
            f"{how} per node for {ranks} ranks: less than one CPU per rank",
            f"request all {type_.vcpus} CPUs of {type_.name}" if type_ is not None else "request all CPUs of the node",
        )
    elif granted is not None and ranks is None and job.cpus_per_task is not None and granted < _requested(job):
        yield problem(
            job.cpus_per_task,
            f"{granted} CPUs per node for {_requested(job)} GPUs: less than one per GPU process",
            "request all CPUs of the node",
            level=None if _several_processes(job) else "info",
        )
    yield from _threads(job, ranks, granted or (type_.vcpus if type_ is not None else None))
    if workers and ranks and job.workers is not None and (granted is None or granted >= ranks):
        limit, of = (granted, "CPUs the job requests") if granted else (type_.vcpus if type_ else None, "vCPUs")
        if limit is not None and workers * ranks > limit:
            place = f" of {type_.name}" if of == "vCPUs" and type_ is not None else ""
            yield problem(
                job.workers,
                f"{workers} loader workers × {ranks} ranks = {workers * ranks} per node, over the {limit} {of}{place}",
                f"use at most {max(1, limit // ranks)} per rank",
            )


def _threads(job: Job, ranks: int | None, cpus: int | None) -> Iterator[Problem]:
    """OMP_NUM_THREADS counts the threads of one rank, not those of the node."""
    for variable in job.script.env if job.script is not None else ():
        threads = whole(variable.value) if variable.name == "OMP_NUM_THREADS" else None
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


def _several_processes(job: Job) -> bool:
    """Whether the launcher starts a process per GPU; `python train.py` may be one process for all."""
    return job.launch is not None and (is_torchrun(job.launch) or job.launch.program in ("accelerate", "deepspeed"))


def _requested(job: Job) -> int:
    return max((value.value for value in job.gpus_per_node if value.known), default=0)
