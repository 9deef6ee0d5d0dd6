"""JOB: what a job computes: parallel sizes, batch, model dimensions, data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import model_parallel, once, refusals, type_of, world
from trainwright.check.launches.launchers import hides_options
from trainwright.check.launches.model_names import Stated, differences, named_size, published
from trainwright.check.launches.trainers import (
    MEGATRON,
    MEGATRON_DEEPSPEED,
    NEMO,
    SPEC,
    SPLITS_MODELS,
    TORCHTITAN,
    trainer_of,
)
from trainwright.check.model import Command, File, Job, ModelDims, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Span

_CHECKS_MODEL = (MEGATRON, MEGATRON_DEEPSPEED, NEMO, SPEC)
_ROUNDS_BATCH = {"rampup_batch_size", "decrease_batch_size_if_needed"}


@rule("JOB002", "error")
def parallel_sizes_fit(file: File) -> Iterator[Problem]:
    """The parallel sizes must fit the ranks and the model.

    tp × pp × cp must divide the number of ranks; tp must divide the attention heads, and the key-value heads unless
    they are replicated; pipeline stages × virtual stages must divide the layers; ep must divide the experts. Tensor
    parallelism across nodes works, slowly (a warning). Options of the same names of a program that is not known as
    Megatron-LM, NeMo or torchtitan are a note.

    Why: the trainer stops at its start, after the nodes were allocated, or communicates over the slow network in every
    layer: the 400 Gbps that each GPU of a P5 node has between nodes are a ninth of its 450 GB/s of NVLink.

    Fix: choose sizes whose product divides nodes × processes, and divisors of the model's dimensions.

    Source: Megatron-LM's argument checks; a GPT-3 launcher leaves 5 to 7 nodes unused (awsome-distributed-ai,
    Megatron-LM).

    When to ignore: the framework supports an uneven split that the file does not state.
    """
    yield from refusals(file, "JOB002")
    for job in file.jobs:
        if not job.refusals:  # the resolver has spoken: its numbers would be judged twice
            yield from _first_of_each([*spread_problems(job), *_split_model(job)])


def _first_of_each(problems: list[Problem]) -> Iterator[Problem]:
    """One problem per number, the worst: another choice must answer all of them."""
    kept: dict[Span, Problem] = {}
    for one in problems:
        if one.span not in kept or (kept[one.span].level == "info" != one.level):
            kept[one.span] = one
    yield from kept.values()


def _unless(certain: bool) -> Level | None:
    return None if certain else "info"


def _axes(job: Job) -> list[tuple[str, Value[int]]]:
    named = [("tp", job.tp), ("pp", job.pp), ("cp", job.cp)]
    return [(name, value) for name, value in named if value is not None and known(value) not in (None, 1)]


def spread_problems(job: Job) -> Iterator[Problem]:
    ranks, product, axes = world(job), model_parallel(job), _axes(job)
    if ranks is None or product is None:
        return
    shard, replicate = known(job.shard), known(job.replicate)
    splits = trainer_of(job) in SPLITS_MODELS
    if axes and ranks.size % product:
        _, value = max(axes, key=lambda axis: axis[1].value)
        written = " × ".join(f"{axis} {size.value}" for axis, size in axes)
        yield problem(
            value,
            f"{written}{f' = {product}' if len(axes) > 1 else ''} does not divide {ranks}",
            f"choose sizes whose product divides {ranks.size}",
            level=_unless(splits and not _to_be_filled_in(job, product, ranks.size)),
        )
    elif job.shard is not None and shard and ranks.size % (product * shard):
        yield problem(
            job.shard,
            f"shard {shard}{f' × {product}' if product > 1 else ''} does not divide {ranks}",
            f"choose a size that divides {ranks.size // product}",
        )
    elif job.replicate is not None and replicate and shard and replicate * shard * product != ranks.size:
        yield problem(
            job.replicate,
            f"replicate {replicate} × shard {shard}{f' × {product}' if product > 1 else ''} is not {ranks}",
            "leave replicate out: it defaults to the remaining ranks",
        )
    elif known(job.extra.get("trainer")) == TORCHTITAN and job.shard is not None and shard and job.replicate is None:
        if shard * product != ranks.size:
            yield problem(
                job.shard,
                f"shard {shard}{f' × {product}' if product > 1 else ''} is not {ranks}, and replicate is 1",
                "write -1: it is then the ranks that are left",
            )
    elif job.tp is not None and known(job.tp) is not None and job.tp.value > ranks.processes:
        yield problem(
            job.tp,
            f"tp {job.tp.value} is more than the {ranks.processes} GPUs of a node: each layer waits for the network",
            f"keep it at {ranks.processes} or less, and use pipeline stages for the rest",
            level="warning" if type_of(job) is not None else "info",  # NVLink may join several nodes (NVL72)
        )


def _to_be_filled_in(job: Job, product: int, ranks: int) -> bool:
    """Whether a script for one node needs only more of them."""
    return product % ranks == 0 and known(job.nodes) == 1 and job.scheduler == "shell"


def _split_model(job: Job) -> Iterator[Problem]:
    model, tp, trainer = job.model, known(job.tp), trainer_of(job)
    if model is None:
        return
    level = _unless(trainer in _CHECKS_MODEL)
    heads, kv, layers, experts = known(model.heads), known(model.kv_heads), known(model.layers), known(model.experts)
    if job.tp is not None and tp and tp > 0:
        if heads and heads % tp:
            yield problem(
                job.tp,
                f"tp {tp} does not divide the {heads} attention heads",
                f"choose a divisor of {heads}",
                level=level,
            )
        elif kv and kv % tp and tp % kv:
            yield problem(
                job.tp,
                f"tp {tp} neither divides the {kv} key-value heads nor is a multiple of them",
                f"choose a divisor or a multiple of {kv}",
                level=level,
            )
    stages, chunks, per_chunk = known(job.pp), known(job.virtual_stages) or 1, _number(job.extra.get("virtual_layers"))
    if job.pp is not None and stages and stages > 1 and layers and "uneven_layers" not in job.extra:
        unit = stages * (per_chunk or chunks)
        if layers % unit and (job.scheduler != "spec" or stages * chunks > layers):
            how = f" × {per_chunk or chunks}" if unit != stages else ""
            yield problem(
                job.pp,
                f"{stages} pipeline stages{how} do not divide {layers} layers",
                f"choose stages that divide {layers}",
                level=_unless(level is None and trainer != MEGATRON_DEEPSPEED and _all_written(job)),
            )
    ep = known(job.ep)
    if job.ep is not None and ep and experts and experts % ep:
        what = f"ep {ep} does not divide the {experts} experts"
        yield problem(job.ep, what, f"choose a divisor of {experts}", level=level)


def _all_written(job: Job) -> bool:
    """Whether no further options can hide in a variable of the command."""
    return job.launch is None or not hides_options(job.launch.words)


def _number(value: Value[str] | None) -> int | None:
    return int(value.value) if value is not None and value.known and value.value.isdecimal() else None


@rule("JOB003", "error")
def batch_divides(file: File) -> Iterator[Problem]:
    """The global batch must be a multiple of micro-batch × data-parallel size.

    Global batch = micro-batch × data-parallel size × accumulation steps, where the data-parallel size is the ranks
    divided by tp × pp × cp. With pipeline parallelism, fewer accumulation steps than stages leave stages idle (a
    note). What a program that is not known makes of such a batch is a note too.

    Why: the trainer stops at its start, or rounds the batch and trains with a different one than was written: 1,000
    sequences on 64 ranks with micro-batch 1 become 960, 4 % fewer.

    Fix: make the global batch a multiple of micro-batch × data-parallel size.

    Source: Megatron-LM's micro-batch calculator; the accumulation column of NeMo's performance tables; arithmetic.

    When to ignore: the trainer ramps the batch size up and handles the remainder.
    """
    yield from refusals(file, "JOB003")
    yield from once(p for job in file.jobs if not job.refusals for p in batch_problems(job))


def batch_problems(job: Job) -> Iterator[Problem]:
    ranks, product, total = world(job), model_parallel(job), known(job.global_batch)
    micro = known(job.micro_batch) if job.micro_batch is not None else (1 if job.scheduler == "spec" else None)
    if ranks is None or not product or not total or not micro or total < 1 or micro < 1 or ranks.size % product:
        return
    if job.global_batch is None or (job.launch is not None and _ROUNDS_BATCH & job.launch.options.keys()):
        return
    copies = ranks.size // product
    if total % (micro * copies):
        nearest = max(1, round(total / (micro * copies))) * micro * copies
        yield problem(
            job.global_batch,
            f"global batch {total} is not a multiple of micro-batch {micro} × {copies} replicas ({micro * copies})",
            f"write {nearest}, or another multiple of {micro * copies}",
            level=_unless(trainer_of(job) in SPLITS_MODELS),
        )
    elif job.pp is not None and (known(job.pp) or 1) > total // (micro * copies):
        steps = total // (micro * copies)
        yield problem(
            job.global_batch,
            f"{steps} micro-batches per step for {job.pp.value} pipeline stages: stages are idle",
            f"use at least {job.pp.value * micro * copies}, better several times that",
            level="info",
        )


@rule("JOB004", "error")
def model_dimensions_fit(file: File) -> Iterator[Problem]:
    """The model's dimensions must be consistent, and those of the model the job is named after.

    The heads divide the hidden size (unless the head dimension is given), the key-value heads divide the heads, the
    sequence is not longer than the position embeddings, and the vocabulary holds the tokenizer's. A job named after a
    published model has that model's dimensions; a job named by a size ("7.5b") has about that many parameters (notes).
    Programs other than Megatron-LM and NeMo may compute something else from options of the same names (a note).

    Why: the first kind stops the trainer at its start. The second trains a different model than everybody believes: a
    "Llama 3.2 1B" with 2 key-value heads cannot load the published weights.

    Fix: use the dimensions of the intended model (`trainwright catalog show llama3.1-8b`), or rename the job.

    Source: the models' published configurations; launchers with other dimensions (awsome-distributed-ai, FSDP).

    When to ignore: the name refers to a variant of your own.
    """
    yield from once(p for job in file.jobs for p in _dimensions(job))


def _dimensions(job: Job) -> Iterator[Problem]:
    model = job.model
    if model is None:
        return
    inconsistent = [*_inside_model(job, model)]
    yield from inconsistent
    if inconsistent or job.scheduler == "spec":
        return
    stated = Stated.of(model)
    shape = published(name for name in (known(model.name), known(job.name)) if name)
    if shape is not None:
        for value, is_, should in differences(stated, model, shape):
            fix = f"write {should}, or give the job another name"
            yield problem(value, f"{is_}, but {shape.name} has {should}", fix, level="info")  # it may be a variant
    elif job.name is not None and stated.complete:
        claimed = named_size(known(job.name) or "")
        sizes = stated.parameters()
        if claimed is not None and not any(claimed.covers(size) for size in sizes):
            nearest = min(sizes, key=lambda size: abs(size - claimed.parameters))
            yield problem(
                job.name,
                f"named {claimed.text}, but these dimensions give {nearest / 1e9:.2f} billion parameters",
                "correct the dimensions or the name",
                level="info",
            )


def _inside_model(job: Job, model: ModelDims) -> Iterator[Problem]:
    hidden, heads, kv = known(model.hidden), known(model.heads), known(model.kv_heads)
    positions, length = known(model.max_position), known(job.sequence)
    level = _unless(trainer_of(job) in _CHECKS_MODEL and (job.scheduler == "spec" or _all_written(job)))
    if model.heads is not None and hidden and heads and hidden % heads and "head_width" not in job.extra:
        yield problem(
            model.heads,
            f"{heads} heads do not divide a hidden size of {hidden}",
            f"choose a divisor of {hidden}, or give the head dimension",
            level=level,
        )
    if model.kv_heads is not None and heads and kv and heads % kv:
        what = f"{kv} key-value heads do not divide {heads} heads"
        yield problem(model.kv_heads, what, f"choose a divisor of {heads}", level=level)
    if job.sequence is not None and positions and length and length > positions:
        yield problem(
            job.sequence,
            f"sequences of {length} tokens, but the model has {positions} position embeddings",
            f"use at most {positions}, or a model with more positions",
            level="warning" if job.scheduler == "spec" else level,  # rotary embeddings can be scaled
        )
    vocab, tokens = known(model.vocab), known(model.tokenizer_vocab)
    if model.vocab is not None and vocab and tokens and tokens > vocab:
        what = f"a vocabulary of {vocab}, but the tokenizer has {tokens} tokens"
        yield problem(model.vocab, what, f"write at least {tokens}", level=_unless_spec(job))  # by its name alone


@rule("JOB012", "error")
def data_sets_differ(file: File) -> Iterator[Problem]:
    """Validation and test data must not be the training data, nor empty.

    A directory that may hold a part for each set is not reported.

    Why: a validation loss on training data always looks good and says nothing about over-fitting. A published
    launcher names the same 50 files for all 3 sets.

    Fix: give each set its own files.

    Source: a BioNeMo launcher names the same files x000..049 for all three (awsome-distributed-ai).

    When to ignore: the run only measures throughput.
    """
    yield from once(p for job in file.jobs if not _only_predicts(job) for p in _data_sets(job))


def _only_predicts(job: Job) -> bool:
    """`--do_predict` or `--do_eval` of a Hugging Face script without `--do_train`: nothing is trained on the data."""
    words = job.of_commands(_modes)
    if job.launch is not None:
        words = words | _modes([job.launch])
    return bool(words) and "--do_train" not in words


def _modes(commands: list[Command]) -> set[str]:
    words = {word.value.partition("=")[0] for command in commands for word in command.words}
    return words & {"--do_predict", "--do_eval", "--do_train"}


def _data_sets(job: Job) -> Iterator[Problem]:
    train = job.datasets.get("train")
    for name, title in (("valid", "validation"), ("test", "test")):
        value = job.datasets.get(name)
        if value is None:
            continue
        if value.value.strip("'\"[] ") == "" and value.known:
            fix = "name its files, or leave the option out"
            yield problem(value, f"the {title} data is empty", fix, level=_unless_spec(job))
        elif train is not None and _same(train.value, value.value) and not _holds_splits(value.value):
            what = f"the {title} data is the training data ({value.value})"
            yield problem(value, what, f"name files kept for {title}", level=_unless_spec(job))


def _unless_spec(job: Job) -> Level | None:
    """A measurement of speed names any data; only our own jobs say whether they are one."""
    return None if job.scheduler == "spec" else "info"


def _holds_splits(path: str) -> bool:
    """Whether a path is a directory that may hold a part for each set, which the script then opens."""
    name = path.strip("'\"").rstrip("/").rpartition("/")[2]
    return "/" in path and "." not in name and "*" not in name and "train" not in path.lower()


def _same(one: str, other: str) -> bool:
    return re.sub(r"\s+", "", one) == re.sub(r"\s+", "", other) != ""
