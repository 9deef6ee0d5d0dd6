"""JOB: a launcher and the configuration files it names are one job: machines, ranks, sizes and batches agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.check.beside import file_beside
from trainwright.check.launches.job_sizes import once, world
from trainwright.check.launches.launchers import is_torchrun, own_options
from trainwright.check.launches.named_configs import is_changed, is_submitted, named_configs, states_beside
from trainwright.check.launches.started import scripts_of_srun
from trainwright.check.launches.steps import copies
from trainwright.check.launches.working_directory import deployed_folders, folders_of, submit_folders
from trainwright.check.model import Command, File, Job, Value, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.readers.values import int_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_accelerate import Config, accelerate_launch
from trainwright.check.rules.job_deepspeed_file import deepspeed_file
from trainwright.check.rules.job_layers import layer_classes
from trainwright.check.rules.job_ports import LOCAL_HOSTS
from trainwright.check.rules.job_resources import one_task
from trainwright.check.rules.job_starts import splits_by_node
from trainwright.check.rules.job_training import batch_problems, spread_problems
from trainwright.check.rules.job_words import if_copied
from trainwright.spec.source import Node

_OVERRIDES = ("num_machines", "num_processes", "main_process_ip", "machine_rank")  # options of accelerate launch
_NODES = {"trainer.num_nodes", "num_nodes", "nnodes", "nodes"}
_FROM_CONFIG = ("tp", "pp", "cp", "ep", "shard", "replicate", "global_batch", "micro_batch", "model")


@rule("JOB015", "error")
def accelerate_counts_fit(file: File) -> Iterator[Problem]:
    """The processes of an accelerate configuration must fit its machines.

    `num_processes` counts the processes of all machines together and must be a multiple of `num_machines`; the rank of
    a machine is below their number; the main process of several machines is not at localhost (a note in the file of
    the first machine, where that is right). A file whose values a launcher beside it passes as options is not
    reported.

    Why: accelerate divides and prints no warning: 12 processes on 8 machines start 1 each, and the 4 others never run.
    Machines that look for the main process on themselves wait until the rendezvous times out.

    Fix: num_processes = machines × GPUs per machine; the first machine's address as `main_process_ip`.

    Source: accelerate 1.15, `prepare_multi_gpu_env` and `launch_command`.

    When to ignore: the launcher overrides these values with options.
    """
    for root, job in zip(file.nodes, file.jobs, strict=False) if file.format == "trainer_config" else ():
        trainer = job.extra.get("trainer")
        if trainer is not None and trainer.value == "accelerate":
            yield from _accelerate(file, root)


def _accelerate(file: File, root: Node) -> Iterator[Problem]:
    """What a launcher passes as an option counts in place of the file; a rank leaves the counts as they are."""
    if states_beside(file.path, "num_machines"):
        return
    total, machines = int_at(root, "num_processes"), int_at(root, "num_machines")
    rank, address = int_at(root, "machine_rank"), text_at(root, "main_process_ip")
    count = known(machines) or 1
    if not _on_several(root) or count < 2:
        return
    if total is not None and total.known and total.value % count and not states_beside(file.path, "num_processes"):
        yield problem(
            total,
            f"num_processes {total.value} is not a multiple of num_machines {count}: it counts all machines together",
            f"write {count} × the GPUs of one machine",
        )
    if states_beside(file.path, *_OVERRIDES):
        return
    if rank is not None and rank.known and rank.value >= count > 1:  # of one machine its rank is not read
        yield problem(rank, f"machine_rank {rank.value}, but there are {count} machines", f"use 0 to {count - 1}")
    if address is not None and address.value in LOCAL_HOSTS:
        yield problem(
            address,
            f"{address.value} is a different machine on each of the {count}: they cannot find each other",
            "write the address of the machine with rank 0",
            level=None if known(rank) else "info",  # for the first machine itself it is right
        )


def _on_several(root: Node) -> bool:
    """Whether accelerate divides the processes among the machines: not on TPUs or SageMaker, nor without a type."""
    where, kind = text_at(root, "compute_environment"), text_at(root, "distributed_type")
    return known(where) == "LOCAL_MACHINE" and known(kind) not in ("NO", "TPU", "XLA")


@rule("JOB016", "error")
def launcher_and_configuration_agree(file: File) -> Iterator[Problem]:
    """A launcher must agree with the configuration file it names.

    The file is read where it lies beside the launcher (a note where the script changes to an absolute directory, such
    as `/fsx/team/sft`, which may hold another file of that name): the parallel sizes and batches of a torchtitan, NeMo
    or llm-foundry configuration against the launcher's ranks; the machines and processes of an accelerate configuration
    against the nodes and GPUs of the job (a note where it starts fewer processes than there are GPUs), and the
    machine's rank, which every node takes from the file where the launcher gives none; the layer class that FSDP wraps
    against the model's; DeepSpeed's `train_batch_size` against micro-batch × accumulation × ranks, and the values and
    precision that the Hugging Face Trainer compares with its own arguments; DeepSpeed's file is not accelerate's. The
    nodes and GPUs of a batch script are compared with the torchrun of a script that its srun starts; the pods of a
    manifest and their GPUs with the torchrun of a script that they run.

    Why: the trainer stops at its start on every rank, after the nodes were allocated (55 USD per hour for each
    p5.48xlarge); accelerate starts a separate run on each node.

    Fix: change the one that is wrong; DeepSpeed takes "auto" for what the Trainer fills in.

    Source: DeepSpeed 0.19, `_batch_assertion`; transformers, `HfTrainerDeepSpeedConfig.trainer_config_finalize`;
    accelerate 1.15, `launch_command` and `set_auto_wrap_policy`; torchtitan, `ParallelDims`.

    When to ignore: the values are overridden after the file is read.
    """
    if file.path == "<stdin>":
        return
    yield from once(p for job in file.jobs if job.launch is not None for p in _with_level(file, job, job.launch))
    yield from once(p for job in file.jobs if job.launch is None for p in _against_script(file, job))


def _with_level(file: File, job: Job, launch: Command) -> Iterator[Problem]:
    """Notes where the launch is one of several, the caller chooses the file, or the script goes elsewhere."""
    named = list(named_configs(launch))
    chosen = any(at.default for at, _ in named)
    folders = folders_of(file, launch) if job.pod is None else None
    certain = list(_against_config(file, job, launch, folders, named))
    for one in certain:
        yield replace(one, level="info") if launch.conditional or chosen else one
    copied, place = deployed_folders(file, launch) if folders == [] else ([], "")
    there = [(at, path) for at, path in named if not is_submitted(at)]
    for one in _against_config(file, job, launch, copied, there) if copied and there else ():
        if one not in certain:
            yield if_copied(one, place)


def _against_config(
    file: File, job: Job, launch: Command, folders: list[str] | None, named: list[tuple[Value[str], str]]
) -> Iterator[Problem]:
    yield from layer_classes(file, job, launch, folders)
    for at, path in named:
        places = submit_folders(file, launch) if is_submitted(at) else folders
        other = file_beside(file.path, _outside(job, path), places)
        if other is None or is_changed(job.script, launch, path):
            continue
        if other.format == "deepspeed" and launch.program == "accelerate" and at is launch.options.get("config_file"):
            yield problem(
                at,
                f"{path} is DeepSpeed's configuration, and accelerate refuses its keys in --config_file",
                "name it with --deepspeed_config_file, beside --use_deepspeed",
            )
        elif other.format == "deepspeed" and other.nodes:
            yield from deepspeed_file(file, job, at, other.nodes[0], folders)
        for root, described in zip(other.nodes, other.jobs, strict=False) if other.format == "trainer_config" else ():
            trainer = described.extra["trainer"].value
            if trainer == "accelerate":
                yield from accelerate_launch(file, job, at, Config(root, described))
            elif trainer == "llm-foundry":
                yield from _composer_batch(job, at, described)
            elif trainer not in ("Hugging Face", "LLaMA-Factory"):
                yield from _sizes(job, at, described)
                yield from _lightning_nodes(job, launch, at, described) if trainer in ("NeMo", "Lightning") else ()


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
    for command, at in job.script.derived(scripts_of_srun) if job.script is not None and job.pod is None else ():
        folders = folders_of(file, command)
        copied, place = deployed_folders(file, command) if not folders else ([], "")
        other = file_beside(file.path, at.value.removeprefix("./"), folders or copied)
        defaults = set(re.findall(r"\$\{(\w+):?-", other.text)) if other is not None else set()
        if other is None or (job.script is not None and defaults & job.script.assigned):
            continue
        started = copies(replace(job, launch=command))
        for inner in other.jobs:
            if not (splits_by_node(other.scripts[0], []) and _waits_for_none(inner.launch)):
                problems = _torchrun_inside(replace(job, nodes=started), at, inner.launch, known(job.nodes))
                yield from (if_copied(one, place) for one in problems)


def _waits_for_none(launch: Command | None) -> bool:
    """Whether each node is meant to run by itself."""
    return launch is not None and stated(whole(own_options(launch).get("nnodes"))) == 1


def _reads_variables(script: File, job: Job) -> bool:
    """Whether a script reads a variable that the pod sets, which may change its options."""
    return any(re.search(rf"\$\{{?{re.escape(variable.name)}\b", script.text) for variable in job.env)


def _torchrun_inside(
    job: Job, at: Value[str], launch: Command | None, machines: int | None = None
) -> Iterator[Problem]:
    """`job` has as nodes the tasks or pods that start torchrun; `machines`: the nodes that these tasks run on."""
    if launch is None or not is_torchrun(launch) or launch.conditional or launch.branch or launch.runner is not None:
        return
    own = own_options(launch)
    waited, given = whole(own.get("nnodes")), known(job.nodes)
    if waited is not None and waited.known and given is not None and waited.value != given:
        yield problem(
            at,
            f"{at.value}, line {waited.span.line}: torchrun is told {waited.value} nodes, and {given} start it",
            _nodes_of_torchrun(job, own, waited.value, machines),
            level="info" if waited.default else None,  # whoever calls sbatch may export another
        )
    each, gpus = whole(own.get("nproc_per_node")), [count for count in job.gpus_per_node if stated(count) is not None]
    if each is not None and each.known and gpus and each.value > gpus[0].value:
        yield problem(
            at,
            f"{at.value}, line {each.span.line}: {each.value} processes per node, and the job requests "
            f"{gpus[0].value} GPUs per node",
            f"write --nproc_per_node={gpus[0].value} there, or request {each.value} GPUs",
            level="info" if each.default else None,
        )


def _nodes_of_torchrun(job: Job, own: dict[str, Value[str]], waited: int, machines: int | None) -> str:
    """A task that starts all processes of its node is there once per node; one that starts a single process counts as
    a node of torchrun."""
    given = known(job.nodes) or 0
    write = f"write --nnodes={given} there"
    if job.pod is not None or not machines:
        return write
    if given <= machines:
        return f"{write}, or --nnodes=$SLURM_NNODES"
    if known(whole(own.get("nproc_per_node"))) in (None, 1):
        return f"{write}, or --nnodes=$SLURM_NTASKS"
    fix = one_task(job, given // machines)
    return fix if waited == machines else f"{fix}, and write --nnodes=$SLURM_NNODES there"


def _sizes(job: Job, at: Value[str], stated: Job) -> Iterator[Problem]:
    """The launcher's ranks with the configuration's sizes; an option of the launcher wins."""
    taken = {name: getattr(stated, name) for name in _FROM_CONFIG if getattr(job, name) is None}
    both = replace(job, **taken, extra=job.extra | {"trainer": stated.extra["trainer"]})
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
    """Lightning waits for `num_nodes` × `devices` ranks, however many srun starts. How a script that is no Hydra
    application lets its arguments change its file is not known."""
    nodes, waited = known(job.nodes), known(stated.nodes)
    if nodes and waited and nodes != waited and not (_NODES & launch.options.keys() or launch.branch):
        hydra = at is launch.options.get("config_name")
        yield problem(
            at,
            f"{at.value}: trainer.num_nodes is {waited}, and the job has {nodes} node{'s' if nodes > 1 else ''}",
            f"add trainer.num_nodes={nodes}, or change the file" if hydra else "make the two equal",
            level=None if hydra else "info",
        )
