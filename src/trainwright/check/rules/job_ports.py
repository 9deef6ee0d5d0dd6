"""JOB: the ports of a rendezvous, and whether another job may want the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import multi_node, type_of
from trainwright.check.launches.launchers import is_torchrun, options_of_launcher
from trainwright.check.launches.scopes import branches
from trainwright.check.model import File, Job, ShellScript, Value, known
from trainwright.check.readers.arguments import whole
from trainwright.check.readers.trainer_config import trainer_of
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")
_GPUS_OF_LARGE_NODES = 8  # a request for as many takes whole nodes on every type but p2.16xlarge
_GPUS_OF_SMALL_NODES = 4
_PRINTS_HOST = re.compile(r"\$\((hostname|scontrol)\b")
_PORT = re.compile(r":(\d+|\$RANDOM)$")


def stated_ports(file: File, job: Job, endpoint: Value[str] | None) -> Iterator[Problem]:
    if (by_accelerate(job) and _one_process(job)) or _ignores_port(job):
        return  # nothing opens the port
    root: Level | None = "info" if _in_container(job) else None  # whose processes mostly run as root
    for value, text, place in _each_port(file, job, endpoint):
        if text == "$RANDOM":
            yield problem(
                place,
                "$RANDOM is 0 to 32767: one start in 32 gets a port below 1024, which only root may open",
                f"write {port_of(job)}",
                level=root,
            )
        elif text == "0" and (_free_port(value) or (_of_accelerate(file, job) and not multi_node(job))):
            continue
        elif text.isdecimal() and not 1024 <= int(text) <= 65535:
            level = root if 0 < int(text) < 1024 else None
            yield problem(
                place, f"port {text} is not between 1024 and 65535", "choose a port in that range", level=level
            )
        elif text.isdecimal() and value.known and shares_nodes(job):
            yield problem(
                place,
                f"port {text} is fixed, and other jobs may share the node: the second one fails to bind it",
                f"derive it from the job id: {port_of(job)}",
                level="info",  # whether they do is the site's decision
            )


def _ignores_port(job: Job) -> bool:
    """torchrun reads --master_port for the static rendezvous only."""
    own, backend = options_of_launcher(job), options_of_launcher(job).get("rdzv_backend")
    dynamic = backend is not None and backend.value != "static"
    return is_torchrun(job.launch) and "rdzv_endpoint" not in own and (dynamic or "standalone" in own)


def _in_container(job: Job) -> bool:
    runner = job.launch.runner if job.launch is not None else None
    return job.pod is not None or (runner is not None and runner.program == "docker")


def _each_port(file: File, job: Job, endpoint: Value[str] | None) -> Iterator[tuple[Value[str], str, Span]]:
    drawn = job.script.derived(_drawn) if job.script is not None else None
    if endpoint is not None:
        match = _PORT.search(endpoint.value)
        if match is not None:
            yield endpoint, match[1], drawn if drawn is not None and match[1] == "$RANDOM" else endpoint.span
    port, given = job.extra.get("master_port"), job.assignments_of("MASTER_PORT")
    if port is not None:
        yield port, port.value, drawn if drawn is not None and port.value == "$RANDOM" else port.span
    elif endpoint is None and given:
        last, values = given[-1].value, [a.value.value for a in given]
        drawn_again = len(values) > 1 and set(values) == {"$RANDOM"}  # until a port fits
        if not drawn_again and (set(values) == {last.value} or not branches(file, given[-1])):
            yield last, last.value, last.span


def _drawn(script: ShellScript) -> Span | None:
    """Where the script draws a port."""
    named = (a.value for a in script.assignments if "PORT" in a.name.upper())
    return next((value.span for value in named if value.value == "$RANDOM"), None)


def port_of(job: Job) -> str:
    """A port that no other job has: by the job's number where Slurm gives one."""
    return "$((10000 + SLURM_JOB_ID % 50000))" if job.scheduler == "slurm" else "$((20000 + RANDOM))"


def by_accelerate(job: Job) -> bool:
    """accelerate gives torchrun the endpoint (its main process's address and port); port 0 is any free one."""
    return job.launch is not None and job.launch.program == "accelerate"


def _of_accelerate(file: File, job: Job) -> bool:
    """A launch by accelerate, or its configuration."""
    return by_accelerate(job) or (job.launch is None and any(trainer_of(root) == "accelerate" for root in file.nodes))


def _one_process(job: Job) -> bool:
    stated = whole(job.launch.options.get("num_processes")) if job.launch is not None else None
    one_gpu = bool(job.gpus_per_node) and all(known(count) == 1 for count in job.gpus_per_node)
    return known(stated) == 1 or (one_gpu and not multi_node(job) and (stated is None or not stated.known))


def _free_port(endpoint: Value[str]) -> bool:
    """`localhost:0` lets the c10d rendezvous of one node pick a free port."""
    return endpoint.value.rpartition(":")[0] in LOCAL_HOSTS


def without_port(job: Job, endpoint: Value[str]) -> bool:
    """Whether an endpoint is a host alone, written or as a command prints it."""
    text = endpoint.value
    if (job.pod is None or job.script is not None) and _PRINTS_HOST.match(text):
        return _closing(text) == len(text) and ":" not in text
    return endpoint.known and ":" not in text


def _closing(text: str) -> int:
    """Just past the bracket that closes the first one."""
    depth = 0
    for index, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == ")" and depth == 0:
            return index + 1
    return -1


def has_one_node(job: Job) -> bool:
    """Whether the job has one node: torchrun's default outside of srun."""
    launch = job.launch
    if job.nodes is None:
        return launch is not None and is_torchrun(launch) and not launch.inside_srun and job.pod is None
    return known(job.nodes) == 1


def own_nodes(job: Job) -> bool:
    """Whether no other job can use the same port: whole nodes, or a pod with its own network."""
    if job.pod is not None:
        return not job.pod.host_network
    type_ = type_of(job)
    all_gpus = type_.gpus if type_ is not None and type_.gpus else _GPUS_OF_LARGE_NODES
    return bool(known(job.exclusive)) or any(value.known and value.value >= all_gpus for value in job.gpus_per_node)


def shares_nodes(job: Job) -> bool:
    """Whether the script requests part of a node only, so that other jobs can share it."""
    type_ = type_of(job)
    if job.scheduler != "slurm" or known(job.exclusive):
        return False
    # Nodes of an unknown type may have as few as four GPUs.
    all_gpus = type_.gpus if type_ is not None else _GPUS_OF_SMALL_NODES
    return any(value.known and 0 < value.value < all_gpus for value in job.gpus_per_node)
