"""JOB: how the nodes of a job find each other: the rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import multi_node, once
from trainwright.check.launches.launchers import hides_options, is_torchrun, options_of_launcher
from trainwright.check.launches.started import nodes_that_run
from trainwright.check.launches.steps import copies, is_whole_job, one_per_node
from trainwright.check.model import Command, File, Job, Value, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_deepspeed import deepspeed_starts
from trainwright.check.rules.job_per_node import different_meetings, different_ports
from trainwright.check.rules.job_ports import (
    LOCAL_HOSTS,
    by_accelerate,
    has_one_node,
    own_nodes,
    port_of,
    shares_nodes,
    stated_ports,
    without_port,
)
from trainwright.check.rules.job_starts import may_join_others, may_start_more, runs_separately, separate_starts
from trainwright.check.rules.job_words import job_number_as_port

_FIRST_HOST = 'name the first node: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


@rule("JOB009", "warning")
def rendezvous_can_be_reached(file: File) -> Iterator[Problem]:
    """Every node must find the same rendezvous host and a usable port.

    The endpoint needs a host that the other nodes can reach and a port between 1024 and 65535. `$RANDOM` gives 0 to
    32767, so one start in 32 picks a port that only root may open. Without a port, torchrun uses 29400 with
    `--rdzv_backend=c10d`, so two jobs that share a node collide; with the static backend, the default, it stops. A job
    with whole nodes (`--exclusive`) is not reported. Localhost is a different machine on every node (a note where the
    file does not show that all of them run the command). `--rdzv_backend=c10d` reads only `--rdzv_endpoint`, not
    `--master_addr`. A batch script runs on the first node only: torchrun on several nodes needs srun and an endpoint,
    and --nnodes (1 by default) must equal the times that it is started. No rank runs on SLURM_SUBMIT_HOST, and
    `$HOSTNAME` or `$(hostname)` that each task expands (in `srun bash -c '…'`, or in a script that srun starts) is
    another host on each, while the batch script expands it once, on the first node, for all. So it is with a rendezvous
    id (an error) and a port of `$RANDOM` or `$(date +%s)`; in a script that the srun of another file starts these are
    notes. Where srun starts one torchrun per node, these are reported too: neither --nnodes nor an endpoint,
    `--standalone`, fewer tasks of srun than --nnodes, and torchrun's options after the script; and of accelerate, no
    --num_machines. The deepspeed launcher learns of other nodes from `--hostfile` only, or from /job/hostfile: without
    one, `--num_nodes` above 1 stops it, and a job of several nodes trains on the first alone.

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
    yield from _rendezvous(file, job)
    yield from separate_starts(file, job)
    yield from deepspeed_starts(job)
    yield from different_meetings(file, job)
    yield from different_ports(job)


def _on_one_machine(file: File) -> bool:
    """Whether a script starts the nodes 0 and 1 itself, each on its own GPUs: a test of several nodes on one."""
    ranks = re.findall(r"node[-_]rank[= ](\d)", file.text)
    return len(set(ranks)) > 1 and "localhost" in file.text and "CUDA_VISIBLE_DEVICES" in file.text


def _rendezvous(file: File, job: Job) -> Iterator[Problem]:
    endpoint, address = job.extra.get("endpoint"), job.extra.get("master_address")
    backend = options_of_launcher(job).get("rdzv_backend") if _all_known(job) else None
    elastic = backend is not None and backend.value == "c10d" and not by_accelerate(job)
    if backend is not None and elastic and endpoint is None and address is not None and multi_node(job):
        if not _endpoint_from_outside(file):
            yield problem(
                backend,
                "c10d takes no --master_addr: without --rdzv_endpoint every node waits on its own localhost:29400",
                f"write --rdzv_endpoint={_endpoint_host(address)}:{_port(job)} instead of --master_addr and "
                "--master_port",
                level="error",
            )
        return
    yield from _own_host(job, endpoint, address)
    yield from _no_port(job, endpoint)
    yield from _wrong_host(file, job, endpoint or address)
    yield from stated_ports(file, job, endpoint)
    yield from job_number_as_port(job)
    yield from _miscounted(file, job)
    yield from _uncounted(job, endpoint or address)
    yield from _never_started(job, endpoint or address)


def _endpoint_host(address: Value[str]) -> str:
    """The host of an address, unless it is another one on every node."""
    return "<first node>" if address.value in LOCAL_HOSTS else address.value


def _port(job: Job) -> str:
    port = options_of_launcher(job).get("master_port")
    return port.value if port is not None and port.value else "29500"


def _endpoint_from_outside(file: File) -> bool:
    """torchrun reads PET_RDZV_ENDPOINT, which the training operator sets for an elastic job."""
    return "elasticPolicy" in file.text or "PET_" in file.text


def _own_host(job: Job, endpoint: Value[str] | None, address: Value[str] | None) -> Iterator[Problem]:
    """The node itself, on each of several nodes that wait for each other."""
    if "nnodes" not in options_of_launcher(job) and is_torchrun(job.launch):
        return  # it waits for nobody
    for value in (endpoint, address):
        host = value.value.rpartition(":")[0] or value.value if value is not None else ""
        if value is None or value.default or host not in LOCAL_HOSTS or not multi_node(job):
            continue
        if known(job.extra.get("trainer")) != "accelerate":  # JOB015 reports it in accelerate's configuration
            yield problem(
                value,
                f"{host} is a different machine on each of the {known(job.nodes)} nodes: they cannot find each other",
                _first(job),
                level=_if_on_all(job),
            )


def _first(job: Job) -> str:
    if job.pod is not None and job.pod.kind == "Job":
        return "name the first pod: <job>-0.<its headless Service>, of a Job with completionMode: Indexed"
    in_batch = job.script is not None and job.script.kind == "sbatch"
    return _FIRST_HOST if in_batch else "name the first node of the job"


def _if_on_all(job: Job) -> Level | None:
    """A note where the file does not show that several nodes run the same command: each may have a copy of its own, or
    all of them may be on one machine."""
    started = copies(job)
    return None if job.pod is not None or (started is not None and started.value > 1) else "info"


def _no_port(job: Job, endpoint: Value[str] | None) -> Iterator[Problem]:
    """The static rendezvous, which is the default, has no default port."""
    if endpoint is None or not without_port(job, endpoint) or not is_torchrun(job.launch):
        return
    own = options_of_launcher(job)
    if "standalone" not in own and "rdzv_backend" not in own and _all_known(job) and not _set_by_operator(job):
        yield problem(
            endpoint,
            f"{endpoint.value} has no port, and torchrun stops: the static rendezvous has no default",
            "add a port, or --rdzv_backend=c10d, whose default is 29400",
            level="error",
            why="torchrun ends with `port is missing in endpoint` before it starts a process.",
        )
    elif not has_one_node(job) and not own_nodes(job) and endpoint.value not in LOCAL_HOSTS:
        yield problem(
            endpoint,
            f"{endpoint.value} has no port: torchrun uses 29400, and two jobs on one node collide",
            f"add a port of the job's own: {port_of(job)}",
            level=None if shares_nodes(job) else "info",
        )


def _wrong_host(file: File, job: Job, place: Value[str] | None) -> Iterator[Problem]:
    """A host that runs no rank, or that is another one on every node."""
    launch, last = job.launch, [a.value for a in job.assignments_of("MASTER_ADDR")[-1:]]
    for value in last + ([place] if place is not None else []):
        if re.search(r"\$\{?SLURM_SUBMIT_HOST\b", value.value):
            level: Level | None = None if multi_node(job) else "info"  # one node may be the one that is logged in to
            message = "the rendezvous is on the host that called sbatch, where no rank runs"
            yield problem(value, message, _FIRST_HOST, level=level)
            return
    other = launch is not None and launch.runner is None and (nodes_that_run(file) or 1) > 1
    if place is None or launch is None or launch.branch or not multi_node(job) or not (launch.inside_srun or other):
        return
    host = re.match(r"\$\{?(HOSTNAME)\b|(\$\(hostname(\s+-\w+)?\))", place.value)
    by_batch = host is not None and not other and (host[1] or host[2]) in launch.batch_variables
    if host is not None and not by_batch and not launch.conditional:
        name = "$HOSTNAME" if host[1] else host[2]
        yield problem(
            place,
            f"{name} is expanded by each task: every node is its own rendezvous",
            _FIRST_HOST,
            level="info" if other else None,
        )


def _miscounted(file: File, job: Job) -> Iterator[Problem]:
    """`--nnodes` against the nodes that the scheduler starts it on."""
    launch = job.launch
    if launch is None or not is_torchrun(launch) or launch.conditional or launch.branch:
        return
    waited, given = whole(options_of_launcher(job).get("nnodes")), _given(job, launch)
    if waited is None or given is None or not given.known or stated(waited) in (None, given.value):
        return
    if waited.value > given.value and _other_jobs_join(job):
        return
    if waited.value > given.value:
        message = f"torchrun waits for {waited.value} nodes, but {given.value} start it: the job never starts"
    elif (job.pod is None and one_per_node(job) is None) or runs_separately(file, job):
        return  # JOB001 reports several on one node
    else:
        message = f"torchrun expects {waited.value} of {given.value} nodes that start it: they do not train together"
    other = f"change line {given.span.line}"
    if job.pod is None:
        other = f"ask for {waited.value} node{'s' if waited.value > 1 else ''}, with one task on each"
    if stated(whole(job.directives.get("nodes"))) == waited.value > given.value:
        other = f"start {waited.value} tasks (line {given.span.line})"  # one for each node that the job has
    yield problem(waited, message, f"write --nnodes={given.value}, or {other}", level="error")


def _other_jobs_join(job: Job) -> bool:
    """Whether each node is a job of its own: a task of an array, or submitted with its rank."""
    rank = options_of_launcher(job).get("node_rank")
    return "array" in job.directives or (rank is not None and not rank.known and "SLURM" not in rank.value)


def _uncounted(job: Job, met_at: Value[str] | None) -> Iterator[Problem]:
    """torchrun on several nodes without --nnodes, which is 1 by default."""
    launch = job.launch
    if launch is None or met_at is None or not is_torchrun(launch) or launch.conditional or not _all_known(job):
        return
    if {"nnodes", "standalone"} & options_of_launcher(job).keys() or _set_by_operator(job) or launch.branch:
        return
    nodes = _given(job, launch) or (job.pod.replicas if job.pod is not None else None)
    if nodes is not None and nodes.known and nodes.value > 1:
        yield problem(
            launch.words[0],
            f"{nodes.value} nodes start torchrun without --nnodes, which is 1: they do not train together",
            f"add --nnodes={nodes.value}{_rank_too(job)}",
            level="info" if met_at.value.partition(":")[0] in LOCAL_HOSTS else "error",  # each may be meant to be alone
        )


def _rank_too(job: Job) -> str:
    """What several nodes need beside their number: the static rendezvous takes each of them for node 0."""
    own = options_of_launcher(job)
    backend = own.get("rdzv_backend")
    if "node_rank" in own or (backend is not None and backend.value != "static"):
        return ""
    endpoint = "" if "rdzv_endpoint" in own else " and --rdzv_endpoint in place of --master_addr and --master_port"
    return f", with --rdzv_backend=c10d{endpoint}"


def _all_known(job: Job) -> bool:
    """Whether no option of the launcher can hide in a variable of its own (`$ARGS`), nor a branch add one."""
    words = job.launch.words if job.launch is not None else []
    end = next((n for n, word in enumerate(words) if word.value.endswith(".py")), len(words))
    return not hides_options(words[:end]) and not (job.script is not None and may_join_others(job.script))


def _set_by_operator(job: Job) -> bool:
    """Whether the environment states torchrun's options: PET_NNODES and the like, or a training operator sets them."""
    names = {variable.name for variable in job.env} | (job.script.assigned if job.script is not None else set())
    return any(name.startswith("PET_") for name in names) or (
        job.pod is not None and job.pod.kind not in ("JobSet", "Job")
    )


def _given(job: Job, launch: Command) -> Value[int] | None:
    """Nodes that run the launcher once each: those of the batch job under a plain srun, or the pods."""
    if job.pod is not None:
        return job.extra.get("replicas")
    runner = launch.runner
    return copies(job) if runner is not None and is_whole_job(runner) else None


def _never_started(job: Job, met_at: Value[str] | None) -> Iterator[Problem]:
    """Several nodes, but nothing starts torchrun on the others or gives them the endpoint."""
    launch, script = job.launch, job.script
    if launch is None or script is None or not is_torchrun(launch) or script.kind != "sbatch" or not multi_node(job):
        return
    own, place = options_of_launcher(job), options_of_launcher(job).get("nnodes")
    if place is None or launch.conditional or launch.branch or "standalone" in own or "array" in job.directives:
        return
    if launch.runner is None and not may_start_more(script, launch):
        yield from _on_the_first(job, own, place)
    elif launch.inside_srun and met_at is None and not _has_endpoint(job):
        yield problem(
            place,
            f"{known(job.nodes)} nodes and no --rdzv_endpoint: each node waits for the others on itself",
            "add --rdzv_backend=c10d --rdzv_endpoint=<first node>:<port>",
        )


def _on_the_first(job: Job, own: dict[str, Value[str]], place: Value[str]) -> Iterator[Problem]:
    """A batch script runs on the first of its nodes, and srun starts what runs on the others."""
    nodes, rank = stated(whole(job.directives.get("nodes"))), own.get("node_rank")
    by_slurm = rank is None or "SLURM" in rank.value
    if nodes is not None and nodes > 1:
        message = f"torchrun waits for {known(job.nodes)} nodes, but the batch script runs it on the first one only"
        endpoint = own.get("rdzv_endpoint")
        elsewhere = endpoint is not None and endpoint.value.partition(":")[0] not in LOCAL_HOSTS
        meets = known(own.get("rdzv_backend")) == "c10d" and elsewhere
        fix = "start it with srun, one task per node"
        fix += "" if meets else ", with --rdzv_backend=c10d and --rdzv_endpoint=<first node>:<port>"
        fix += f", and write --nnodes={nodes}" if stated(whole(place)) not in (nodes, None) else ""
    elif by_slurm:
        message = f"torchrun waits for {known(job.nodes)} nodes, but the script asks for {nodes or 'one'}"
        fix = f"ask for {known(job.nodes)} nodes and start torchrun with srun, or write --nnodes=1"
        by_slurm = known(own.get("rdzv_endpoint")) is None  # a host that is written may be another job's
    else:
        return  # another job has the other ranks
    yield problem(place, message, fix, level=None if by_slurm and nodes is not None else "info")


def _has_endpoint(job: Job) -> bool:
    names = job.script.assigned if job.script is not None else set()
    words = job.launch.words if job.launch is not None else []
    if job.script is not None and may_join_others(job.script):
        return True
    return not all(w.known for w in words) or any(n.startswith("PET_") or n == "MASTER_ADDR" for n in names)
