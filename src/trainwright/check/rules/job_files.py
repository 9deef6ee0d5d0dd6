"""JOB: a launcher and the configuration files it names are one job: machines, ranks, sizes and batches agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.check.beside import file_beside
from trainwright.check.job_sizes import CHOOSING, World, is_torchrun, once, world
from trainwright.check.model import Command, File, Job, Value, known
from trainwright.check.named_configs import named_configs
from trainwright.check.readers.arguments import whole
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_options import is_on
from trainwright.check.rules.job_training import batch_problems, spread_problems
from trainwright.spec.source import Node

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")
_FROM_CONFIG = ("tp", "pp", "cp", "ep", "shard", "replicate", "global_batch", "micro_batch", "model")
# Keys of DeepSpeed's file that the Hugging Face Trainer compares with its own arguments, and refuses if they differ.
_SHARED = (
    ("per_device_train_batch_size", ("train_micro_batch_size_per_gpu",)),
    ("gradient_accumulation_steps", ("gradient_accumulation_steps",)),
    ("learning_rate", ("optimizer", "params", "lr")),
    ("weight_decay", ("optimizer", "params", "weight_decay")),
    ("warmup_steps", ("scheduler", "params", "warmup_num_steps")),
    ("max_grad_norm", ("gradient_clipping",)),
)


@rule("JOB015", "error")
def accelerate_counts_fit(file: File) -> Iterator[Problem]:
    """The processes of an accelerate configuration must fit its machines.

    `num_processes` counts the processes of all machines together and must be a multiple of `num_machines`; the rank of
    a machine is below their number; the main process of several machines is not at localhost.

    Why: accelerate divides without a word: 12 processes on 8 machines start 1 each, and the 4 others never run.
    Machines that look for the main process on themselves wait until the rendezvous times out.

    Fix: num_processes = machines × GPUs per machine; the first machine's address as `main_process_ip`.

    Source: accelerate 1.15, `prepare_multi_gpu_env` and `launch_command`.

    When to ignore: the launcher overrides these values with options.
    """
    for root, job in zip(file.nodes, file.jobs, strict=False) if file.format == "trainer_config" else ():
        trainer = job.extra.get("trainer")
        if trainer is not None and trainer.value == "accelerate":
            yield from _accelerate(root)


def _accelerate(root: Node) -> Iterator[Problem]:
    total, machines = int_at(root, "num_processes"), int_at(root, "num_machines")
    rank, address = int_at(root, "machine_rank"), text_at(root, "main_process_ip")
    count = known(machines) or 1
    if total is not None and total.known and count > 0 and total.value % count:
        yield problem(
            total,
            f"num_processes {total.value} is not a multiple of num_machines {count}: it counts all machines together",
            f"write {count} × the GPUs of one machine",
        )
    if rank is not None and rank.known and rank.value >= count:
        yield problem(rank, f"machine_rank {rank.value}, but there are {count} machines", f"use 0 to {count - 1}")
    if address is not None and count > 1 and address.value in _LOCAL_HOSTS:
        yield problem(
            address,
            f"{address.value} is a different machine on each of the {count}: they cannot find each other",
            "write the address of the machine with rank 0",
        )


@rule("JOB016", "error")
def launcher_and_configuration_agree(file: File) -> Iterator[Problem]:
    """A launcher must agree with the configuration file it names.

    Where the file lies beside the launcher it is read: the parallel sizes and batches of a torchtitan, NeMo or
    llm-foundry configuration against the launcher's ranks; the machines and processes of an accelerate configuration
    against the nodes and GPUs of the job; DeepSpeed's `train_batch_size` against micro-batch × accumulation × ranks,
    and the values and precision that the Hugging Face Trainer compares with its own arguments; DeepSpeed's file is not
    accelerate's. The nodes and GPUs of a batch script are compared with the torchrun of a script that its srun starts;
    the pods of a manifest and their GPUs with the torchrun of a script that they run.

    Why: the trainer stops at its start on every rank, after the nodes were allocated (55 USD per hour for each
    p5.48xlarge); accelerate starts a separate run on each node.

    Fix: change the one that is wrong; DeepSpeed takes "auto" for what the Trainer fills in.

    Source: DeepSpeed 0.19, `_batch_assertion`; transformers, `HfTrainerDeepSpeedConfig.trainer_config_finalize`;
    accelerate 1.15, `launch_command`; torchtitan, `ParallelDims`.

    When to ignore: the values are overridden after the file is read.
    """
    if file.path == "<stdin>":
        return
    yield from once(p for job in file.jobs if job.launch is not None for p in _against_config(file, job, job.launch))
    yield from once(p for job in file.jobs if job.launch is None for p in _against_script(file, job))


def _against_config(file: File, job: Job, launch: Command) -> Iterator[Problem]:
    for at, path in named_configs(launch):
        other = file_beside(file.path, _outside(job, path))
        if other is None:
            continue
        if other.format == "deepspeed" and launch.program == "accelerate" and at is launch.options.get("config_file"):
            yield problem(
                at,
                f"{path} is DeepSpeed's configuration, and accelerate refuses its keys in --config_file",
                "name it with --deepspeed_config_file, beside --use_deepspeed",
            )
        elif other.format == "deepspeed" and other.nodes:
            yield from _deepspeed(job, launch, at, other.nodes[0])
        for stated in other.jobs if other.format == "trainer_config" else ():
            trainer = stated.extra["trainer"].value
            if trainer == "accelerate":
                yield from _accelerate_launch(job, launch, at, stated)
            elif trainer == "llm-foundry":
                yield from _composer_batch(job, at, stated)
            elif trainer != "Hugging Face":
                yield from _sizes(job, at, stated)
                yield from _lightning_nodes(job, launch, at, stated) if trainer == "NeMo" else ()


def _outside(job: Job, path: str) -> str:
    """A file of a pod's image is beside the manifest by its last name, if at all."""
    return path.rsplit("/", 1)[-1] if job.pod is not None and path.startswith("/") else path


def _against_script(file: File, job: Job) -> Iterator[Problem]:
    """A batch script and the script that its srun starts on every node; a pod and the script that it runs."""
    for command in job.commands if job.pod is not None else ():
        at = next((word for word in command.words[:2] if word.known and word.value.endswith(".sh")), None)
        other = file_beside(file.path, _outside(job, at.value).removeprefix("./")) if at is not None else None
        if at is not None and other is not None and len(other.jobs) == 1 and not _reads_variables(other, job):
            yield from _torchrun_inside(replace(job, nodes=job.extra.get("replicas")), at, other.jobs[0].launch)
    for command in job.script.commands if job.script is not None and job.pod is None else ():
        runner = command.runner
        if not command.inside_srun or runner is None or runner.options.keys() & CHOOSING:
            continue
        at = next((word for word in command.words[:2] if word.known and word.value.endswith(".sh")), None)
        other = file_beside(file.path, at.value.removeprefix("./")) if at is not None else None
        defaults = set(re.findall(r"\$\{(\w+):?-", other.text)) if other is not None else set()
        if (
            at is not None
            and other is not None
            and not (job.script is not None and defaults & set(job.script.assigned))
        ):
            yield from (p for inner in other.jobs for p in _torchrun_inside(job, at, inner.launch))


def _reads_variables(script: File, job: Job) -> bool:
    """Whether a script reads a variable that the pod sets, which may change its options."""
    return any(re.search(rf"\$\{{?{re.escape(variable.name)}\b", script.text) for variable in job.env)


def _torchrun_inside(job: Job, at: Value[str], launch: Command | None) -> Iterator[Problem]:
    if launch is None or not is_torchrun(launch) or launch.conditional or launch.runner is not None:
        return
    waited, given = whole(launch.options.get("nnodes")), known(job.nodes)
    if waited is not None and waited.known and given is not None and waited.value != given:
        yield problem(
            at,
            f"{at.value}, line {waited.span.line}: torchrun is told {waited.value} nodes, and {given} start it",
            f"write --nnodes={given} there, or --nnodes=$SLURM_NNODES",
        )
    each, gpus = whole(launch.options.get("nproc_per_node")), [count for count in job.gpus_per_node if count.known]
    if each is not None and each.known and gpus and each.value > gpus[0].value:
        yield problem(
            at,
            f"{at.value}, line {each.span.line}: {each.value} processes per node, and the job requests "
            f"{gpus[0].value} GPUs per node",
            f"write --nproc_per_node={gpus[0].value} there, or request {each.value} GPUs",
        )


def _sizes(job: Job, at: Value[str], stated: Job) -> Iterator[Problem]:
    """The launcher's ranks with the configuration's sizes; an option of the launcher wins."""
    taken = {name: getattr(stated, name) for name in _FROM_CONFIG if getattr(job, name) is None}
    both = replace(job, **taken)
    for one in [*spread_problems(both), *batch_problems(both)]:
        if any(value is not None and value.span == one.span for value in taken.values()):
            yield problem(at, f"{at.value}, line {one.span.line}: {one.message}", one.fix, level=one.level)


def _composer_batch(job: Job, at: Value[str], stated: Job) -> Iterator[Problem]:
    """Composer divides the global batch by the ranks; a last micro-batch may be smaller than the others."""
    total, ranks = known(stated.global_batch), world(job)
    if total and ranks is not None and total % ranks.size and job.global_batch is None and stated.global_batch:
        yield problem(
            at,
            f"{at.value}, line {stated.global_batch.span.line}: global batch {total} is not a multiple of the "
            f"{ranks.size} ranks",
            f"write {-(-total // ranks.size) * ranks.size}, or another multiple of {ranks.size}",
        )


def _lightning_nodes(job: Job, launch: Command, at: Value[str], stated: Job) -> Iterator[Problem]:
    """Lightning waits for `num_nodes` × `devices` ranks, however many srun starts."""
    nodes, waited = known(job.nodes), known(stated.nodes)
    if nodes and waited and nodes != waited and "trainer.num_nodes" not in launch.options:
        yield problem(
            at,
            f"{at.value}: trainer.num_nodes is {waited}, and the job has {nodes} nodes",
            f"add trainer.num_nodes={nodes}, or change the file",
        )


def _accelerate_launch(job: Job, launch: Command, at: Value[str], stated: Job) -> Iterator[Problem]:
    if launch.program != "accelerate":
        return
    nodes, machines = known(job.nodes), known(stated.nodes)
    if nodes and machines and nodes != machines and "num_machines" not in launch.options:
        yield problem(
            at,
            f"{at.value} states {machines} machine{'s' if machines > 1 else ''}, and the job has {nodes} nodes",
            f"pass --num_machines {nodes}, or change the file",
        )
        return
    gpus = next((value.value for value in job.gpus_per_node if value.known), None)
    each = known(stated.processes_per_node)
    if gpus and each and each > gpus and "num_processes" not in launch.options:
        yield problem(
            at,
            f"{at.value} starts {each} processes per machine, and the job requests {gpus} GPUs per node",
            f"pass --num_processes {gpus * (nodes or machines or 1)}, or change the file",
        )


def _deepspeed(job: Job, launch: Command, at: Value[str], root: Node) -> Iterator[Problem]:
    yield from _deepspeed_batch(at, root, world(job), launch)
    yield from _precision(launch, at, root)
    for option, path in _SHARED:
        mine, theirs = launch.options.get(option), text_at(root, *path)
        if mine is None or theirs is None or not mine.known or not theirs.known:
            continue
        one, other = _number(mine.value), _number(theirs.value)
        if one is not None and other is not None and one != other:
            yield problem(
                mine,
                f"--{option} {mine.value}, but {path[-1]} is {theirs.value} in {at.value}: the Trainer stops",
                'write the same value in both, or "auto" in the JSON file',
            )


def _precision(launch: Command, at: Value[str], root: Node) -> Iterator[Problem]:
    """The Trainer's `--bf16` against `fp16.enabled` of the file, and the other way round."""
    if not {"per_device_train_batch_size", "output_dir"} & launch.options.keys():
        return
    for mine, other in (("bf16", "fp16"), ("fp16", "bf16")):
        flag = launch.options.get(mine)
        if flag is None or not is_on(flag):
            continue
        enabled = known(bool_at(root, mine, "enabled"))
        if known(bool_at(root, other, "enabled")) or enabled is False:
            what = f"{mine} is disabled" if enabled is False else f"{other} is enabled"
            yield problem(
                flag.key or flag,
                f"--{mine}, but {what} in {at.value}: the Trainer stops",
                'write "enabled": "auto" in the JSON file, or change one of the two',
            )


def _deepspeed_batch(at: Value[str], root: Node, ranks: World | None, launch: Command) -> Iterator[Problem]:
    total, micro = int_at(root, "train_batch_size"), int_at(root, "train_micro_batch_size_per_gpu")
    steps = int_at(root, "gradient_accumulation_steps")
    if total is None or micro is None or steps is None or ranks is None or _splits_model(launch):
        return
    if not (total.known and micro.known and steps.known):
        return
    product = micro.value * steps.value * ranks.size
    if product != total.value:
        yield problem(
            at,
            f"{at.value}: train_batch_size {total.value} is not micro-batch {micro.value} × accumulation {steps.value} "
            f"× {ranks.size} ranks = {product}",
            "leave one of the three out: DeepSpeed computes it",
        )


def _splits_model(launch: Command) -> bool:
    """Whether some ranks share a model replica, so that fewer than all of them divide the batch."""
    return any("parallel" in name or name in ("tp", "pp", "sp") for name in launch.options)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
