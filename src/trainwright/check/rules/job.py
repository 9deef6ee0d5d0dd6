"""JOB: how a job starts. GPUs and cards a node, loader processes, node ranks, rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check.job_sizes import is_torchrun, multi_node, once, processes, type_of
from trainwright.check.model import File, Job, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Span

_RANK_VARIABLES = {"SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")
_PORT = re.compile(r":(\d+|\$RANDOM)$")


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


@rule("JOB008", "error")
def node_rank_differs_by_node(file: File) -> Iterator[Problem]:
    """The node rank must be different on every node.

    A literal `--node_rank 0` in a command that runs on every node makes each of them the first. So does
    `$SLURM_NODEID` or `$SLURM_PROCID` in the words of srun: the batch script, which runs on the first node only,
    replaces it by 0 before srun sends the words out.

    Why: the rendezvous waits for ranks that never come, or the nodes train apart without saying so.

    Fix: let torchrun find the rank (`--rdzv_backend=c10d`), or let each node's own shell expand the variable:
    `srun bash -c 'torchrun --node_rank $SLURM_NODEID …'`.

    Source: Slurm sets SLURM_NODEID for each task; the distillation and ESM2 launchers of
    awsome-distributed-ai.
    """
    yield from once(p for job in file.jobs for p in _node_ranks(job))


def _node_ranks(job: Job) -> Iterator[Problem]:
    rank, launch = job.extra.get("node_rank"), job.launch
    if rank is None or launch is None:
        return
    if rank.known and rank.value.isdigit() and _same_on_all(job):
        yield problem(
            rank,
            f"the node rank is {rank.value} on each of the {_copies(job)} nodes",
            "leave it to the launcher (--rdzv_backend=c10d), or take it from the node's own environment",
        )
        return
    found = next((name for name in sorted(_RANK_VARIABLES) if re.search(rf"\$\{{?{name}\b", rank.value)), None)
    if found is not None and found in launch.batch_variables and launch.inside_srun and known(job.nodes) != 1:
        yield problem(
            rank,
            f"${found} is replaced by the batch script, on the first node, so every node gets rank 0",
            f"let each task expand it: srun bash -c '… --node_rank ${found} …', or \\${found} inside double quotes",
        )


def _same_on_all(job: Job) -> bool:
    """Whether the one command runs, as it stands, on several nodes."""
    if job.pod is not None:
        replicas = known(job.pod.replicas)
        return replicas is not None and replicas > 1
    runner = job.launch.runner if job.launch is not None else None
    if not multi_node(job) or runner is None or runner.program != "srun":
        return False
    chosen = {"nodelist", "w", "relative", "r"} & runner.options.keys()
    return not chosen and known(job.nodes) != 1 and runner.options.get("N", Value("", job.span)).value != "1"


def _copies(job: Job) -> int | None:
    return known(job.pod.replicas) if job.pod is not None else known(job.nodes)


@rule("JOB009", "warning")
def rendezvous_can_be_reached(file: File) -> Iterator[Problem]:
    """Every node must find the same host and a free port.

    The endpoint needs a host that the other nodes can reach and a port between 1024 and 65535. `$RANDOM` gives 0 to
    32767, so one start in thirty-two asks for a port that only root may open. Without a port, torchrun takes 29400,
    which two jobs on one node then share. Localhost is another machine on every node.

    Why: a job that hangs at its start, now and then or always, with every GPU reserved.

    Fix: `--rdzv_endpoint=$head:$port` with the first host of the job and a port made from the job's id:
    `port=$((10000 + SLURM_JOB_ID % 50000))`.

    Source: torchrun's documentation; 18 launchers without a port in awsome-distributed-ai.
    """
    yield from once(p for job in file.jobs for p in _rendezvous(job))


def _rendezvous(job: Job) -> Iterator[Problem]:
    endpoint, address = job.extra.get("endpoint"), job.extra.get("master_address")
    for value in (endpoint, address):
        host = value.value.rpartition(":")[0] or value.value if value is not None else ""
        if value is not None and multi_node(job) and host in _LOCAL_HOSTS:
            yield problem(
                value,
                f"{host} is another machine on each of the {known(job.nodes)} nodes: they never meet",
                "name the first node of the job",
            )
    if endpoint is not None and _without_port(endpoint) and not _alone(job) and endpoint.value not in _LOCAL_HOSTS:
        yield problem(
            endpoint,
            f"{endpoint.value} has no port: torchrun takes 29400, and two jobs on one node collide",
            "add a port made from the job's id, such as :$((10000 + SLURM_JOB_ID % 50000))",
        )
    yield from _ports(job, endpoint)


def _alone(job: Job) -> bool:
    """Whether the job plainly has one node: torchrun's own default outside of srun."""
    launch = job.launch
    if job.nodes is None:
        return launch is not None and is_torchrun(launch) and not launch.inside_srun and job.pod is None
    return known(job.nodes) == 1


def _without_port(endpoint: Value[str]) -> bool:
    text = endpoint.value
    if text.startswith("$(") and not text.startswith("$(("):
        return _closing(text) == len(text)
    return endpoint.known and ":" not in text


def _closing(text: str) -> int:
    """Just past the bracket that closes the first one."""
    depth = 0
    for index, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == ")" and depth == 0:
            return index + 1
    return -1


def _ports(job: Job, endpoint: Value[str] | None) -> Iterator[Problem]:
    for value, text, place in _stated_ports(job, endpoint):
        if text == "$RANDOM":
            yield problem(
                place,
                "$RANDOM is 0 to 32767: one start in 32 gets a port below 1024, which only root may open",
                "make it from the job's id: $((10000 + SLURM_JOB_ID % 50000))",
            )
        elif text.isdigit() and not 1024 <= int(text) <= 65535:
            yield problem(place, f"port {text} is not between 1024 and 65535", "choose a port in that range")
        elif text.isdigit() and value.known and _shares_nodes(job):
            yield problem(
                place,
                f"port {text} is fixed, and other jobs may share the node: the second to start finds it taken",
                "make it from the job's id: $((10000 + SLURM_JOB_ID % 50000))",
            )


def _stated_ports(job: Job, endpoint: Value[str] | None) -> Iterator[tuple[Value[str], str, Span]]:
    assigned = job.script.assignments if job.script is not None else []
    random = next((a for a in assigned if "PORT" in a.name.upper() and a.value.value == "$RANDOM"), None)
    if random is not None:
        yield random.value, "$RANDOM", random.value.span
        return
    if endpoint is not None:
        match = _PORT.search(endpoint.value)
        if match is not None:
            yield endpoint, match[1], endpoint.span
    port = job.extra.get("master_port")
    if port is not None:
        yield port, port.value, port.span
    elif endpoint is None:
        yield from ((a.value, a.value.value, a.value.span) for a in assigned if a.name == "MASTER_PORT")


def _shares_nodes(job: Job) -> bool:
    """Whether the script plainly takes a part of a node and leaves the rest to others."""
    type_ = type_of(job)
    if job.scheduler != "slurm" or known(job.exclusive) or type_ is None:
        return False
    return any(value.known and 0 < value.value < type_.gpus for value in job.gpus_per_node)
