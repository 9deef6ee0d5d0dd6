"""JOB: what a job uses on each node: GPUs and EFA cards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import multi_node, once, type_of
from trainwright.check.launches.launchers import is_torchrun, own_options
from trainwright.check.launches.steps import copies
from trainwright.check.model import Command, File, Job, ShellScript, Value, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule

# Several processes may share a GPU, or use none: the program runs on CPUs, or NVIDIA's MPS divides the GPU.
_SHARES_GPUS = re.compile(r"gloo|--(use_)?cpu\b|--device[= ]cpu|--no[-_]cuda|cuda-mps|CUDA_MPS|\bccl\b")
_MOST_GPUS = 16  # of one node
_ALL_GPUS = re.compile(r"[\"']?(gpu|auto|\$\{?SLURM_GPUS_ON_NODE\}?)[\"']?")
_OF_GPUS = re.compile(r"gpu|gres|tres|^G$")  # options that may give each task a part of them
_OF_TASK = re.compile(r"SLURM_(LOCALID|PROCID)|CUDA_VISIBLE_DEVICES=\S*\$")


@rule("JOB001", "error")
def gpus_match_the_machine(file: File) -> Iterator[Problem]:
    """GPU and EFA counts of a job must match the instance type and each other.

    The counts appear in many places (the resource request, GPUS_PER_NODE, --nproc_per_node, slots of an MPIJob, the EFA
    resource) and are edited by hand for each instance type. They must not exceed what the instance has, must not
    contradict each other or CUDA_VISIBLE_DEVICES, and a job that uses every GPU of a node should use every EFA card
    too. torchrun starts all processes of a node (`gpu`, `auto` and `$SLURM_GPUS_ON_NODE`: one for each GPU that is
    requested), so it runs as one task per node; accelerate's --num_processes counts those of all machines. More
    processes than GPUs are not reported where the file shows CPUs, gloo or NVIDIA's MPS; CUDA_VISIBLE_DEVICES is not
    compared where srun starts torchrun, because Slurm sets it anew for a step with GPUs.

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
    tasks = list(_torchrun_tasks(job))
    yield from (one for one in _against_each_other(job) if one.span not in [other.span for other in tasks])
    yield from tasks
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
    lists = job.assignments_of("CUDA_VISIBLE_DEVICES")
    started, launch = job.processes_per_node, job.launch
    if len(lists) != 1 or started is None or stated(started) is None or launch is None or not is_torchrun(launch):
        return
    value, kept = lists[0].value, lists[0].applies or lists[0].span.line == launch.span.line
    devices = value.value.strip("'\" ")
    if stated(value) is None or not re.fullmatch(r"\d+(,\d+)*", devices) or value.span.line > launch.span.line:
        return
    if not kept or launch.conditional or launch.branch or _shares_gpus(job) or job.of_commands(_unset_devices):
        return
    if launch.inside_srun:
        return  # Slurm sets the variable anew for each step with GPUs
    count = devices.count(",") + 1
    if started.value > count:
        yield problem(
            started,
            f"{started.value} processes per node, but CUDA_VISIBLE_DEVICES shows {count} GPU{'s' if count > 1 else ''} "
            f"(line {value.span.line})",
            f"start {count}, or list every GPU",
        )


def _unset_devices(commands: list[Command]) -> bool:
    unset = (word for command in commands if command.program == "unset" for word in command.words)
    return any(word.value == "CUDA_VISIBLE_DEVICES" for word in unset)


def _shares_gpus(job: Job) -> bool:
    """Whether the file shows a reason for more processes than GPUs."""
    if job.script is not None:
        return job.script.derived(_script_shares_gpus)
    return _SHARES_GPUS.search(" ".join(w.value for c in job.commands for w in c.words)) is not None


def _script_shares_gpus(script: ShellScript) -> bool:
    return _SHARES_GPUS.search(script.text) is not None


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
    return job.of_commands(_maps_processes)


def _maps_processes(commands: list[Command]) -> bool:
    words = (word.value for command in commands for word in command.words)
    return any("ppr:" in word or "oversubscribe" in word.lower() for word in words)


def _against_each_other(job: Job) -> Iterator[Problem]:
    if not job.gpus_per_node or not job.gpus_per_node[0].known or _places_processes(job):
        return
    asked = job.gpus_per_node[0]
    started = [*job.gpus_per_node[1:], *([job.processes_per_node] if job.processes_per_node is not None else [])]
    directives = {value.span for value in job.directives.values()}
    requests = directives & {value.span for value in job.gpus_per_node}
    requested = asked.span in directives or job.scheduler in ("kubernetes", "spec")
    for value in started:
        if not value.known or value.span == asked.span:
            continue
        if _of_one_machine(job, value, asked):
            yield problem(
                value,
                f"--num_processes counts all {known(job.nodes)} machines together: {value.value} for each, which has "
                f"{asked.value} GPUs",
                f"write --num_processes={asked.value * (known(job.nodes) or 1)}{_one_launcher(job)}",
                level="warning",
            )
        elif {value.span, asked.span} <= requests and value.value != asked.value:
            yield problem(
                value,
                f"{value.value} GPUs per node are requested here, and {asked.value} on line {asked.span.line}",
                "keep one of the two requests",
                level="warning",
                why=reasons.TWO_REQUESTS,
            )
        elif value.value > asked.value > 0 and requested and not _shares_gpus(job):
            started_here = value is job.processes_per_node
            gpus = f"{asked.value} GPU{'s are' if asked.value > 1 else ' is'}"
            yield problem(
                value,
                f"{value.value} {'processes' if started_here else 'GPUs'} per node, but {gpus} requested on line "
                f"{asked.span.line}",
                _fewer_processes(job, value, asked) if started_here else "make the two equal",
                level=_if_certain(job, asked, value),
            )
        elif value.value > 1 and value.value * _launchers(job, value) < asked.value:
            yield problem(
                value,
                f"{value.value} GPUs per node are used of the {asked.value} requested on line {asked.span.line}",
                "make the two equal; the other GPUs are idle",
                level="info",
                why=reasons.IDLE_GPUS,
            )


def _fewer_processes(job: Job, value: Value[int], asked: Value[int]) -> str:
    """How each node gets no more processes than GPUs: the launcher may count those of all nodes."""
    nodes, launch = stated(whole(job.directives.get("nodes"))) or 1, job.launch
    if launch is not None and launch.program == "accelerate" and value.value == asked.value * nodes > asked.value:
        if _has_fewer_tasks(job):
            return "ask for one task on each node: Slurm reduces the nodes to the tasks"
        return f"write --num_machines={nodes}: --num_processes counts the processes of all machines"
    return f"start {asked.value} per node, or request {value.value} GPUs per node"


def _has_fewer_tasks(job: Job) -> bool:
    nodes, tasks = (stated(whole(job.directives.get(name))) for name in ("nodes", "ntasks"))
    return nodes is not None and tasks is not None and tasks < nodes


def _one_launcher(job: Job) -> str:
    """Several tasks of a node would each start so many processes."""
    tasks = stated(job.tasks_per_node) or 1
    return f", and {one_task(job, tasks)}" if tasks > 1 and copies(job) is not None else ""


def _launchers(job: Job, value: Value[int]) -> int:
    """How many launchers of a node start so many processes each: srun may start several."""
    under_srun = job.launch is not None and job.launch.inside_srun and value is job.processes_per_node
    return known(job.tasks_per_node) or 1 if under_srun else 1


def _if_certain(job: Job, asked: Value[int], started: Value[int]) -> Level | None:
    """A note where the caller may give another number, a branch may not run, or a variable may not be used."""
    launch, used = job.launch, job.processes_per_node
    certain = stated(asked) is not None and stated(started) is not None and not (launch is not None and launch.branch)
    certain = certain and not _has_fewer_tasks(job)
    return None if certain and used is not None and used.span == started.span else "info"


def _of_one_machine(job: Job, value: Value[int], asked: Value[int]) -> bool:
    """Whether accelerate on several machines gets the number of processes of one."""
    launch = job.launch
    if launch is None or launch.program != "accelerate" or value is not job.processes_per_node or not multi_node(job):
        return False
    own = own_options(launch)
    return "num_machines" in own and not launch.branch and stated(whole(own.get("num_processes"))) == asked.value


def _fit(job: Job, tasks: int | None, ranks: int | None) -> bool:
    gpus = _gpus(job)
    return gpus is None or (tasks or 1) * (ranks or 1) <= gpus


def _gpus(job: Job) -> int | None:
    """The GPUs of a node, as far as the job states them."""
    return max((value.value for value in job.gpus_per_node if value.known), default=None)


def _torchrun_tasks(job: Job) -> Iterator[Problem]:
    tasks, ranks = stated(job.tasks_per_node), stated(job.processes_per_node) or _one_for_each_gpu(job)
    launch, started = job.launch, copies(job)
    if launch is None or not is_torchrun(launch) or started is None or job.tasks_per_node is None or launch.branch:
        return
    if whole(job.directives.get("ntasks")) is not None and "ntasks-per-node" in job.directives:
        return  # the first wins, and the second is a maximum
    if stated(whole(own_options(launch).get("nnodes"))) == started.value and _fit(job, tasks, ranks):
        return  # each task is a node of its own, with a part of the GPUs
    if tasks is not None and ranks is not None and tasks > 1 and ranks > 1:
        yield problem(
            job.tasks_per_node,
            f"{tasks} tasks per node each start a torchrun with {ranks} processes: up to {tasks * ranks} per node",
            f"{one_task(job, tasks)}, and --nproc_per_node={_gpus(job) or ranks}: torchrun starts the processes",
        )


def _one_for_each_gpu(job: Job) -> int | None:
    """The processes of `--nproc_per_node=gpu` and of $SLURM_GPUS_ON_NODE, where each task of srun has all GPUs of its
    node."""
    launch, script = job.launch, job.script
    each = own_options(launch).get("nproc_per_node") if launch is not None else None
    if each is None or script is None or launch is None or launch.runner is None or not _ALL_GPUS.fullmatch(each.value):
        return None
    shared = launch.runner.options.keys() | (job.directives.keys() - {"gres", "gpus-per-node"})
    if any(_OF_GPUS.search(name) for name in shared) or script.derived(_has_word_of_task):
        return None
    directives = {value.span for value in job.directives.values()}
    return next((stated(count) for count in job.gpus_per_node if count.span in directives), None)


def _has_word_of_task(script: ShellScript) -> bool:
    return _OF_TASK.search(script.text) is not None


def one_task(job: Job, tasks: int) -> str:
    """What makes one task of several, with the GPUs of all: sbatch refuses two tasks for one."""
    counted, each = job.directives.get("ntasks"), whole(job.directives.get("gpus-per-task"))
    change = "use one task per node (--ntasks-per-node=1)"
    if counted is not None:
        change = f"write --ntasks-per-node=1 in place of --ntasks={counted.value}"
    runner = job.launch.runner if job.launch is not None else None
    if runner is not None and runner.program == "srun" and runner.options.keys() & {"n", "ntasks"}:
        change = f"write --ntasks-per-node=1 in place of {'-n' if 'n' in runner.options else '--ntasks'} of srun"
    if each is not None and each.known:
        change += f", --gpus-per-node={_gpus(job) or each.value * tasks} in place of --gpus-per-task"
    return change + _cpus_of_all(job, tasks)


def _cpus_of_all(job: Job, tasks: int) -> str:
    """One task in place of several would have the CPUs of one, and all processes with them."""
    if "cpus-per-gpu" in job.directives:
        return ""
    each = whole(job.directives.get("cpus-per-task"))
    if each is None:
        return ", --cpus-per-task for all its processes"
    return f", --cpus-per-task={each.value * tasks}" if each.known else ""
