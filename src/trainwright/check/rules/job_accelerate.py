"""JOB: accelerate on the nodes of a job, against the configuration file that it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check import reasons
from trainwright.check.launches.launchers import own_options
from trainwright.check.launches.steps import copies, one_per_node
from trainwright.check.model import File, Job, Value, known, stated
from trainwright.check.readers.values import bool_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.job_starts import IN_EACH_TASK, runs_separately
from trainwright.spec.source import Node

_ONE_RANK = (
    "the static rendezvous takes the number of each machine from its options: all of them are the same machine, and "
    "the others' ranks are waited for until the timeout of 15 minutes."
)
_COUNTS = {"num_processes", "num_machines", "cpu", "use_cpu", "gpu_ids"}
# What else takes GPUs of the job: servers that generate, one model over several GPUs, a choice by their numbers.
_OTHER_USERS = re.compile(r"vllm|sglang|CUDA_VISIBLE_DEVICES|device_map|ray start|model_?parallel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration file of accelerate, and the job that it describes."""

    root: Node
    job: Job

    @property
    def on_gpus(self) -> bool:
        kind = known(text_at(self.root, "distributed_type"))
        return kind not in ("NO", "MULTI_CPU", "TPU", "XLA") and not known(bool_at(self.root, "use_cpu"))


def accelerate_launch(file: File, job: Job, at: Value[str], config: Config) -> Iterator[Problem]:
    launch = job.launch
    if launch is None or launch.program != "accelerate" or launch.branch:
        return
    own = own_options(launch)
    nodes, machines = one_per_node(job), known(config.job.nodes)
    if nodes is not None and machines and nodes.value != machines and "num_machines" not in own:
        if not (machines == 1 and runs_separately(file, job)):
            yield problem(
                at,
                f"{at.value} states {machines} machine{'s' if machines > 1 else ''}, and srun starts accelerate on "
                f"{nodes.value} nodes",
                f"pass --num_machines {nodes.value}, --num_processes with the GPUs of all nodes, --main_process_ip "
                "with the first node, --main_process_port, and --machine_rank, "
                f"{IN_EACH_TASK.format('--machine_rank')}",
            )
        return
    yield from _same_rank(at, nodes, config, own)
    gpus = next((value.value for value in job.gpus_per_node if stated(value) is not None), None)
    each = known(config.job.processes_per_node)
    if gpus and each and each > gpus and config.on_gpus and not own.keys() & {"num_processes", "cpu", "use_cpu"}:
        yield problem(
            at,
            f"{at.value} starts {each} processes per machine, and the job requests {gpus} GPU{'s' if gpus > 1 else ''} "
            "per node",
            f"pass --num_processes {gpus * (machines or 1)}, or change the file",
        )
    if not own.keys() & _COUNTS and gpus and each and each < gpus and config.on_gpus:
        yield from _unused_gpus(job, at, config, gpus)


def _unused_gpus(job: Job, at: Value[str], config: Config, gpus: int) -> Iterator[Problem]:
    """Fewer processes than GPUs: a mistake where all machines together have as many as one has GPUs, else a note."""
    each, machines = known(config.job.processes_per_node) or 0, known(config.job.nodes) or 1
    stated = config.job.extra["all_processes"]
    if machines > 1 and each * machines == gpus:
        yield problem(
            at,
            f"{at.value}: num_processes {gpus} counts all {machines} machines together: {each} of the "
            f"{gpus} GPUs of each are used",
            f"write num_processes: {gpus * machines}",
            level="warning",
            why=reasons.IDLE_GPUS,
        )
    elif _once_per_node(job, machines) and not _leaves_gpus(job, config):
        per_node = " per node" if machines > 1 else ""
        yield problem(
            at,
            f"{at.value}, line {stated.span.line}: num_processes {stated.value} starts {each} "
            f"process{'es' if each > 1 else ''}{' on each machine' if per_node else ''}, and the job requests {gpus} "
            f"GPUs{per_node}",
            f"write num_processes: {gpus * machines}, or request {each} GPU{'s' if each > 1 else ''}{per_node}",
            level="info",  # a process may use several GPUs
            why=reasons.IDLE_GPUS,
        )


def _once_per_node(job: Job, machines: int) -> bool:
    """Whether one accelerate has all GPUs of its node: srun may start several that divide them."""
    if machines > 1 or (job.launch is not None and job.launch.runner is not None):
        return one_per_node(job) is not None or known(copies(job)) == 1
    return True


def _leaves_gpus(job: Job, config: Config) -> bool:
    """Whether the others may be used: another program runs beside the launch, or the GPUs are chosen."""
    text = job.script.text if job.script is not None else ""
    launches = [one for one in job.commands if one.program == "accelerate"]
    background = any(one.background for one in job.commands)
    chosen = text_at(config.root, "gpu_ids")
    others = len(launches) > 1 or background or _OTHER_USERS.search(text) is not None
    return others or (chosen is not None and chosen.value != "all")


def _same_rank(
    at: Value[str], nodes: Value[int] | None, config: Config, own: dict[str, Value[str]]
) -> Iterator[Problem]:
    """Every node reads the same file, and the static rendezvous asks each for its number."""
    backend = own.get("rdzv_backend") or text_at(config.root, "rdzv_backend")
    if nodes is None or "machine_rank" in own or (backend is not None and backend.value != "static"):
        return
    launcher = text_at(config.root, "deepspeed_config", "deepspeed_multinode_launcher")
    by_hostfile = known(text_at(config.root, "distributed_type")) == "DEEPSPEED" and known(launcher) != "standard"
    rank = text_at(config.root, "machine_rank")
    if by_hostfile or not config.on_gpus or (rank is not None and not rank.known):
        return
    number = rank.value if rank is not None else "0, the default"
    yield problem(
        at,
        f"each of the {nodes.value} nodes takes machine_rank {number} from {at.value}: the rendezvous never completes",
        f"add --machine_rank, {IN_EACH_TASK.format('--machine_rank')}" + _no_address(config, own),
        why=_ONE_RANK,
    )


def _no_address(config: Config, own: dict[str, Value[str]]) -> str:
    """What else the nodes need to find each other."""
    stated = own.get("main_process_ip") or text_at(config.root, "main_process_ip")
    unset = stated is None or (stated.known and stated.value.lower() in ("", "null", "none", "~"))
    return "; and --main_process_ip with the first node of the job, and --main_process_port" if unset else ""
