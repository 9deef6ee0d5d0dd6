"""JOB: how the nodes of a job find each other: the rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.job_sizes import CHOOSING, is_torchrun, multi_node, once, type_of
from trainwright.check.model import Command, File, Job, Value, known
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_deepspeed import deepspeed_starts
from trainwright.check.rules.job_starts import separate_starts
from trainwright.spec.source import Span

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")
_GPUS_OF_LARGE_NODES = 8  # a request for as many takes whole nodes on every type but p2.16xlarge
_GPUS_OF_SMALL_NODES = 4
_FIRST_HOST = 'name the first node: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_PORT = re.compile(r":(\d+|\$RANDOM)$")


@rule("JOB009", "warning")
def rendezvous_can_be_reached(file: File) -> Iterator[Problem]:
    """Every node must find the same rendezvous host and a usable port.

    The endpoint needs a host that the other nodes can reach and a port between 1024 and 65535. `$RANDOM` gives 0 to
    32767, so one start in 32 picks a port that only root may open. Without a port, torchrun uses 29400, so two jobs
    that share a node collide; a job with whole nodes (`--exclusive`) is not reported. Localhost is a different machine
    on every node. `--rdzv_backend=c10d` reads only `--rdzv_endpoint`, not `--master_addr`. A batch script runs on the
    first node only: torchrun on several nodes needs srun and an endpoint, and --nnodes (1 by default) must equal the
    nodes of the job. No rank runs on SLURM_SUBMIT_HOST, and `$HOSTNAME` or `$(hostname)` that each task expands is
    another host on each. Where srun starts one torchrun per node, these are reported too: neither --nnodes nor an
    endpoint, `--standalone`, fewer tasks of srun than --nnodes, and torchrun's options after the script; and of
    accelerate, no --num_machines. The deepspeed launcher learns of other nodes from `--hostfile` only, or from
    /job/hostfile: without one, `--num_nodes` above 1 stops it, and a job of several nodes trains on the first alone.

    Why: the job hangs at its start, sometimes or always, with every GPU allocated: torchrun gives up after 10 minutes
    (c10d) or 15 (static), and 16 p5.48xlarge cost 15 USD per minute.

    Fix: `--rdzv_endpoint=$head:$port` with the first host of the job and a port derived from the job id: `port=$((10000
    + SLURM_JOB_ID % 50000))`.

    Source: torchrun documentation; launchers without a port in awsome-distributed-ai; launcher/runner.py of DeepSpeed
    0.12.6 to 0.19.8.

    When to ignore: the cluster never places two jobs on one node, although the script does not say so.
    """
    if not _on_one_machine(file):
        yield from once(p for job in file.jobs for p in _starts(file, job))


def _starts(file: File, job: Job) -> Iterator[Problem]:
    yield from _rendezvous(job)
    yield from separate_starts(file, job)
    yield from deepspeed_starts(job)


def _on_one_machine(file: File) -> bool:
    """Whether a script starts the nodes 0 and 1 itself, each on its own GPUs: a test of several nodes on one."""
    ranks = re.findall(r"node[-_]rank[= ](\d)", file.text)
    return len(set(ranks)) > 1 and "localhost" in file.text and "CUDA_VISIBLE_DEVICES" in file.text


def _of_one_node(job: Job) -> bool:
    """Whether the command is written for one node, by whose number; each of the others has a copy of its own."""
    rank = job.launch.options.get("node_rank") if job.launch is not None else None
    runner = job.launch.runner if job.launch is not None else None
    return rank is not None and rank.known and rank.value.isdigit() and runner is None and job.pod is None


def _rendezvous(job: Job) -> Iterator[Problem]:
    endpoint, address = job.extra.get("endpoint"), job.extra.get("master_address")
    backend = job.launch.options.get("rdzv_backend") if job.launch is not None and _all_known(job) else None
    elastic = backend is not None and backend.value == "c10d" and not _by_accelerate(job)
    if backend is not None and elastic and endpoint is None and address is not None and multi_node(job):
        yield problem(
            backend,
            "c10d takes no --master_addr: without --rdzv_endpoint every node waits on its own localhost:29400",
            "write --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT instead of --master_addr and --master_port",
            level="error",
        )
        return
    for value in (endpoint, address):
        host = value.value.rpartition(":")[0] or value.value if value is not None else ""
        if value is None or value.default or host not in _LOCAL_HOSTS or not multi_node(job):
            continue
        if known(job.extra.get("trainer")) != "accelerate":  # JOB015 reports it in accelerate's configuration
            yield problem(
                value,
                f"{host} is a different machine on each of the {known(job.nodes)} nodes: they cannot find each other",
                "name the first node of the job",
                level="info" if _of_one_node(job) else None,
            )
    if (
        endpoint is not None
        and _without_port(job, endpoint)
        and not _alone(job)
        and not _own_nodes(job)
        and endpoint.value not in _LOCAL_HOSTS
    ):
        yield problem(
            endpoint,
            f"{endpoint.value} has no port: torchrun uses 29400, and two jobs on one node collide",
            "add a port derived from the job id, such as :$((10000 + SLURM_JOB_ID % 50000))",
            level=None if _shares_nodes(job) else "info",
        )
    yield from _wrong_host(job, endpoint or address)
    yield from _ports(job, endpoint)
    yield from _miscounted(job)
    yield from _uncounted(job, endpoint or address)
    yield from _never_started(job, endpoint or address)


def _wrong_host(job: Job, place: Value[str] | None) -> Iterator[Problem]:
    """A host that runs no rank, or that is another one on every node."""
    launch, assigned = job.launch, job.script.assignments if job.script is not None else []
    stated = [a.value for a in assigned if a.name == "MASTER_ADDR"] + ([place] if place is not None else [])
    for value in stated:
        if re.search(r"\$\{?SLURM_SUBMIT_HOST\b", value.value):
            yield problem(value, "the rendezvous is on the host that called sbatch, where no rank runs", _FIRST_HOST)
            return
    if place is None or launch is None or not launch.inside_srun or not multi_node(job):
        return
    host = re.match(r"\$\{?(HOSTNAME)\b|(\$\(hostname(\s+-\w+)?\))", place.value)
    if host is not None and (host[1] or host[2]) not in launch.batch_variables and not launch.conditional:
        name = "$HOSTNAME" if host[1] else host[2]
        yield problem(place, f"{name} is expanded by each task: every node is its own rendezvous", _FIRST_HOST)


def _miscounted(job: Job) -> Iterator[Problem]:
    """`--nnodes` against the nodes that the scheduler starts it on."""
    launch = job.launch
    if launch is None or not is_torchrun(launch) or launch.conditional:
        return
    waited, given = whole(launch.options.get("nnodes")), _given(job, launch)
    if waited is None or not waited.known or given is None or not given.known or waited.value == given.value:
        return
    if waited.value > given.value:
        message = f"torchrun waits for {waited.value} nodes, but {given.value} start it: the job never starts"
    else:
        message = f"torchrun expects {waited.value} nodes, and {given.value} start it: the others train separately"
    yield problem(waited, message, f"write --nnodes={given.value}, or change line {given.span.line}", level="error")


def _uncounted(job: Job, met_at: Value[str] | None) -> Iterator[Problem]:
    """torchrun on several nodes without --nnodes, which is 1 by default."""
    launch = job.launch
    if launch is None or met_at is None or not is_torchrun(launch) or launch.conditional or not _all_known(job):
        return
    if "nnodes" in launch.options or "standalone" in launch.options or _set_by_operator(job):
        return
    nodes = _given(job, launch) or (job.pod.replicas if job.pod is not None else None)
    if nodes is not None and nodes.known and nodes.value > 1:
        yield problem(
            launch.words[0],
            f"{nodes.value} nodes start torchrun without --nnodes, which is 1: they train separately or hang",
            f"add --nnodes={nodes.value}",
            level="error",
        )


def _all_known(job: Job) -> bool:
    """Whether no option can hide in a variable of its own (`$ARGS`)."""
    words = job.launch.words if job.launch is not None else []
    return all(
        word.known or word.value.startswith("-") or not word.value.startswith("$") for word in _launcher_words(words)
    )


def _launcher_words(words: list[Value[str]]) -> list[Value[str]]:
    """The words before the script."""
    end = next((n for n, word in enumerate(words) if word.value.endswith(".py")), len(words))
    following_option = {n + 1 for n, word in enumerate(words) if word.value.startswith("-") and "=" not in word.value}
    return [word for n, word in enumerate(words[:end]) if n not in following_option]


def _set_by_operator(job: Job) -> bool:
    """Whether the environment states the nodes: PET_NNODES, or a training operator that sets it."""
    names = {variable.name for variable in job.env} | (job.script.assigned if job.script is not None else set())
    return "PET_NNODES" in names or (job.pod is not None and job.pod.kind not in ("JobSet", "Job"))


def _given(job: Job, launch: Command) -> Value[int] | None:
    """Nodes that run the launcher once each: those of the batch job under a plain srun, or the pods."""
    if job.pod is not None:
        return job.extra.get("replicas")
    runner = launch.runner
    if runner is None or runner.program != "srun" or runner.options.keys() & CHOOSING:
        return None
    return whole(job.directives.get("nodes"))


def _never_started(job: Job, met_at: Value[str] | None) -> Iterator[Problem]:
    """Several nodes, but nothing starts torchrun on the others or gives them the endpoint."""
    launch, script = job.launch, job.script
    if launch is None or script is None or not is_torchrun(launch) or script.kind != "sbatch" or not multi_node(job):
        return
    place = launch.options.get("nnodes")
    if place is None or launch.conditional or "standalone" in launch.options:
        return
    elsewhere = any(c.program in ("ssh", "pdsh", "clush", "parallel", "xargs") for c in script.commands)
    if launch.runner is None and not elsewhere:
        yield problem(
            place,
            f"torchrun waits for {known(job.nodes)} nodes, but the batch script runs it on the first one only",
            "start it with srun, one task per node",
        )
    elif launch.inside_srun and met_at is None and not _has_endpoint(job):
        yield problem(
            place,
            f"{known(job.nodes)} nodes and no --rdzv_endpoint: each node waits for the others on itself",
            "add --rdzv_backend=c10d --rdzv_endpoint=<first node>:<port>",
        )


def _has_endpoint(job: Job) -> bool:
    names = job.script.assigned if job.script is not None else set()
    words = job.launch.words if job.launch is not None else []
    return not all(w.known for w in words) or any(n.startswith("PET_") or n == "MASTER_ADDR" for n in names)


def _alone(job: Job) -> bool:
    """Whether the job has one node: torchrun's default outside of srun."""
    launch = job.launch
    if job.nodes is None:
        return launch is not None and is_torchrun(launch) and not launch.inside_srun and job.pod is None
    return known(job.nodes) == 1


def _without_port(job: Job, endpoint: Value[str]) -> bool:
    text = endpoint.value
    in_shell = job.pod is None or job.script is not None
    if in_shell and text.startswith("$(") and not text.startswith("$(("):
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
    if _by_accelerate(job) and _one_process(job):
        return  # accelerate starts the script itself, and nothing opens the port
    for value, text, place in _stated_ports(job, endpoint):
        if text == "$RANDOM":
            yield problem(
                place,
                "$RANDOM is 0 to 32767: one start in 32 gets a port below 1024, which only root may open",
                "derive it from the job id: $((10000 + SLURM_JOB_ID % 50000))",
            )
        elif text == "0" and (_free_port(value) or (_by_accelerate(job) and not multi_node(job))):
            continue
        elif text.isdecimal() and not 1024 <= int(text) <= 65535:
            yield problem(place, f"port {text} is not between 1024 and 65535", "choose a port in that range")
        elif text.isdecimal() and value.known and _shares_nodes(job):
            yield problem(
                place,
                f"port {text} is fixed, and other jobs may share the node: the second one fails to bind it",
                "derive it from the job id: $((10000 + SLURM_JOB_ID % 50000))",
                level="info",  # whether they do is the site's decision
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


def _by_accelerate(job: Job) -> bool:
    """accelerate gives torchrun the endpoint (its main process's address and port); port 0 is any free one."""
    return job.launch is not None and job.launch.program == "accelerate"


def _one_process(job: Job) -> bool:
    stated = whole(job.launch.options.get("num_processes")) if job.launch is not None else None
    one_gpu = bool(job.gpus_per_node) and all(known(count) == 1 for count in job.gpus_per_node)
    return known(stated) == 1 or (one_gpu and not multi_node(job) and (stated is None or not stated.known))


def _free_port(endpoint: Value[str]) -> bool:
    """`localhost:0` lets the c10d rendezvous of one node pick a free port."""
    return endpoint.value.rpartition(":")[0] in _LOCAL_HOSTS


def _own_nodes(job: Job) -> bool:
    """Whether no other job can use the same port: whole nodes, or a pod with its own network."""
    if job.pod is not None:
        return not job.pod.host_network
    type_ = type_of(job)
    all_gpus = type_.gpus if type_ is not None and type_.gpus else _GPUS_OF_LARGE_NODES
    return bool(known(job.exclusive)) or any(value.known and value.value >= all_gpus for value in job.gpus_per_node)


def _shares_nodes(job: Job) -> bool:
    """Whether the script requests part of a node only, so that other jobs can share it."""
    type_ = type_of(job)
    if job.scheduler != "slurm" or known(job.exclusive):
        return False
    # Nodes of an unknown type may have as few as four GPUs.
    all_gpus = type_.gpus if type_ is not None else _GPUS_OF_SMALL_NODES
    return any(value.known and 0 < value.value < all_gpus for value in job.gpus_per_node)
