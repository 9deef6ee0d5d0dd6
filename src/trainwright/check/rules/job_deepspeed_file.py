"""JOB: DeepSpeed's file against the launcher that names it, and against the arguments of the Hugging Face Trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.job_sizes import processes, world
from trainwright.check.launches.launchers import hides_options
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, File, Job, Value, known, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.job_options import is_on
from trainwright.check.rules.job_ports import has_one_node
from trainwright.spec.source import Node

_OF_TRAINER = {"per_device_train_batch_size", "output_dir"}
# A program that starts DeepSpeed itself, or has an option of the Trainer's name in its own parser.
_OWN_LOOP = re.compile(r"""deepspeed\.initialize\(|add_argument\(\s*["']--per_device_train_batch_size""")
# Keys of DeepSpeed's file that the Hugging Face Trainer compares with its own arguments, and refuses if they differ.
_SHARED = (
    ("per_device_train_batch_size", ("train_micro_batch_size_per_gpu",)),
    ("gradient_accumulation_steps", ("gradient_accumulation_steps",)),
    ("learning_rate", ("optimizer", "params", "lr")),
    ("learning_rate", ("scheduler", "params", "warmup_max_lr")),
    ("weight_decay", ("optimizer", "params", "weight_decay")),
    ("warmup_steps", ("scheduler", "params", "warmup_num_steps")),
    ("max_steps", ("scheduler", "params", "total_num_steps")),
    ("max_grad_norm", ("gradient_clipping",)),
)
_COMPUTED = ("warmup_steps", "max_steps")  # by the Trainer, where they are 0 or -1, or a fraction of all steps
_OTHER_NODES = {"hostfile", "H", "num_nodes", "include", "i", "exclude", "e"}
# Programs whose ranks share a replica of the model, so that fewer than all of them divide the batch, and their options.
_SHARES_REPLICA = re.compile(
    r"PipelineModule|ProcessTopology|ulysses|\bmpu\b|(tensor|model|pipeline|pipe|sequence|context)_parallel", re.I
)
_SPLITS = {"tp", "pp", "sp", "cp", "mp", "p", "stages", "num_stages", "pipeline_stages"}
_OWN_SCHEDULE = re.compile(
    r"lr_scheduler\s*=|total_num_steps|lr_scheduler\.\w+LR|get_\w*schedule"
)  # which wins over the file
_LOWEST, _LONGER = "warmup_min_lr", 4
_SETS_BATCH = re.compile(r"(?<!per_device_)train_batch_size")  # a program that speaks of the whole batch itself


def deepspeed_file(
    file: File, job: Job, at: Value[str], root: Node, folders: list[str] | None = None
) -> Iterator[Problem]:
    """What the launcher and the program that it starts state otherwise than DeepSpeed's file; `folders`: where both
    files are."""
    launch = job.launch
    if launch is None:
        return
    text = program_text(file, launch, folders) or ""
    by_option = at is launch.options.get("deepspeed")
    trained = by_option and bool(_OF_TRAINER & launch.options.keys()) and not _OWN_LOOP.search(text)
    if not _SETS_BATCH.search(text) and not _SHARES_REPLICA.search(text):
        yield from _deepspeed_batch(job, at, root, trained)
    if not trained:
        yield from _outlived_schedule(job, at, root, text)
        return  # another program may take its own arguments, or those of the file
    yield from _precision(launch, at, root)
    for option, path in _SHARED:
        mine, theirs = launch.options.get(option), text_at(root, *path)
        if mine is None or theirs is None or not mine.known or not theirs.known:
            continue
        one, other = _number(mine.value), _number(theirs.value)
        if one is not None and other is not None and one != other and (one >= 1 or option not in _COMPUTED):
            yield problem(
                mine,
                f"--{option} {mine.value}, but {path[-1]} is {theirs.value} in {at.value}: the Trainer stops",
                'write the same value in both, or "auto" in the JSON file' + _total_too(option, root),
            )


def _total_too(option: str, root: Node) -> str:
    """The size of the whole batch would no longer fit a part of it that the Trainer fills in."""
    total = int_at(root, "train_batch_size")
    fixed = total is not None and total.known and option in _PARTS_OF_BATCH
    return ", there also for train_batch_size" if fixed else ""


_PARTS_OF_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")


def _precision(launch: Command, at: Value[str], root: Node) -> Iterator[Problem]:
    """The Trainer's `--bf16` against `fp16.enabled` of the file, and the other way round."""
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


def _deepspeed_batch(job: Job, at: Value[str], root: Node, trained: bool) -> Iterator[Problem]:
    """`train_batch_size` against the ranks and what else is stated; `trained`: the Trainer states the rest."""
    total, ranks, launch = int_at(root, "train_batch_size"), _ranks(job), job.launch
    if total is None or not total.known or ranks is None or launch is None or _splits_model(launch, root):
        return
    micro, steps = int_at(root, "train_micro_batch_size_per_gpu"), int_at(root, "gradient_accumulation_steps")
    if trained and hides_options(launch.words):
        return  # a variable may hold the other two
    if trained:
        micro = _given(micro) or whole(launch.options.get("per_device_train_batch_size"))
        steps = _given(steps) or _accumulation(launch)
    if any(value is not None and not value.known for value in (micro, steps)):
        return
    parts = [f"micro-batch {micro.value}"] if micro is not None else []
    parts += [f"accumulation {steps.value}"] if steps is not None else []
    product = ranks * (micro.value if micro is not None else 1) * (steps.value if steps is not None else 1)
    whole_batch = micro is not None and steps is not None
    if product > 0 and (product != total.value if whole_batch else total.value % product):
        factors = " × ".join([*parts, f"{ranks} ranks" + (f" = {product}" if parts else "")])
        yield problem(
            at,
            f"{at.value}: train_batch_size {total.value} is {'not' if whole_batch else 'no multiple of'} {factors}",
            _fix_of_batch(trained, whole_batch, product),
        )


def _outlived_schedule(job: Job, at: Value[str], root: Node, text: str) -> Iterator[Problem]:
    """A decay to zero that ends long before the run: four times, and twice if the run counts micro-batches."""
    total, low = int_at(root, "scheduler", "params", "total_num_steps"), root.get("scheduler", "params", _LOWEST)
    kind, steps = known(text_at(root, "scheduler", "type")), known(job.steps)
    accumulated = known(int_at(root, "gradient_accumulation_steps")) or 1
    if kind != "WarmupDecayLR" or _OWN_SCHEDULE.search(text) or "unit" in job.extra or job.steps is None:
        return
    if total is None or not total.known or not steps or (low is not None and (_number(low.text) or 0) > 0):
        return
    if steps >= max(_LONGER, 2 * accumulated) * total.value > 0:
        yield problem(
            job.steps,
            f"WarmupDecayLR of {at.value} is at 0 after {total.value:,} steps, and the run has {steps:,}",
            f"write {steps} for total_num_steps"
            + (f", or {-(-steps // accumulated)} if the run counts micro-batches" if accumulated > 1 else ""),
            level="warning",
            why=reasons.TRAINS_AT_ZERO,
        )


def _fix_of_batch(trained: bool, whole_batch: bool, product: int) -> str:
    if trained:
        return 'write "train_batch_size": "auto": the Trainer fills it in'
    if whole_batch:
        return "leave train_batch_size out: DeepSpeed computes it from the other two"
    return f"write a multiple of {product}"


def _given(value: Value[int] | None) -> Value[int] | None:
    return value if value is not None and value.known else None


def _accumulation(launch: Command) -> Value[int]:
    """What the Trainer is given, or its default."""
    return whole(launch.options.get("gradient_accumulation_steps")) or Value(1, launch.span)


def _ranks(job: Job) -> int | None:
    """The ranks of a job: one node where the launcher is given no other, as by a script for one machine."""
    size, launch = world(job), job.launch
    if size is not None or launch is None:
        return size.size if size is not None else None
    alone = has_one_node(job) or (launch.program == "deepspeed" and not _OTHER_NODES & launch.options.keys())
    certain = job.nodes is None and launch.runner is None and not launch.branch and not hides_options(launch.words)
    in_batch = job.script is not None and job.script.kind == "sbatch"
    return stated(processes(job)) if alone and certain and not in_batch else None


def _splits_model(launch: Command, root: Node) -> bool:
    """Whether some ranks share a model replica, so that fewer than all of them divide the batch."""
    named = any("parallel" in name or name in _SPLITS for name in launch.options)
    return named or any("parallel" in name or name == "elasticity" for name, _ in root.items())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
