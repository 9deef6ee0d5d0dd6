"""Turns a request into a Setup: completes the parallel plan, refuses what cannot run, and chooses the microbatch and
the recomputation that were left open."""

from __future__ import annotations

import math
from dataclasses import replace

from trainwright.catalog.models import model
from trainwright.errors import UserError
from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device, cluster
from trainwright.predict.memory import TIGHT, host_fits, least_recompute, memory
from trainwright.predict.objective import Objective, objective_of, tokens_per_sample
from trainwright.predict.profiles import Profile, profile, profiles
from trainwright.predict.request import PredictRequest
from trainwright.predict.setup import Batch, Setup, zero_stage
from trainwright.predict.step import step_time
from trainwright.train.flops import trained_shape
from trainwright.train.models.adapter_shape import refuse_adapters
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.pipeline_schedule import is_zero_bubble, schedule_conflict
from trainwright.train.parallel.plan import CONTEXTS, ParallelPlan, complete, parse_axes

MICRO_BATCHES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
OWN, EAGER, NEURON = "trainwright", "trainwright-eager", "neuronx"  # our trainer needs GPUs
ZERO_STAGES = ("0", "1", "2", "3")


def lay_out(request: PredictRequest, c: Constants) -> Setup:
    """The job of a request with nothing left open."""
    shape = model(request.model) if isinstance(request.model, str) else request.model
    machines = cluster(request.instance, request.nodes, request.gpus_per_node)
    refuse_precision(machines.device, request.precision)
    neuron = machines.device.family == "neuroncore"
    plan, zero = read_plan(request.plan, machines.gpus)
    refuse_options(request, plan)
    zero_bubble = is_zero_bubble(request.pipeline_schedule, plan)
    own = EAGER if zero_bubble else OWN  # inside a compiled block, nothing can be put off
    trainer = profile((NEURON if neuron else own) if request.trainer == OWN else request.trainer)
    refuse_base(request, trainer)
    if trainer.own:
        shape = trained_shape(shape)
    zero = request.zero if request.zero is not None else zero
    sequence = request.sequence or shape.longest_sequence
    objective = (
        request.objective if isinstance(request.objective, Objective) else objective_of(shape, request.objective)
    )
    refuse_misfit(plan, replace(shape, kv_heads=shape.heads) if trainer.copies_kv_heads else shape, sequence)
    if trainer.own:
        refuse_adapters(shape, request.adapter_rank, objective.name)
    if trainer.own and (problem := plan.unsupported(shape, objective.name, request.adapter_rank > 0)):
        raise UserError(problem, where=f"plan {plan}", fix=f"shard={plan.world}")
    sample = tokens_per_sample(shape, sequence, objective)
    sequences = request.sequences or shared_sequences(request.batch_tokens, sample, plan.data)
    published = request.float8 == "rowwise" and not trainer.own  # runs of others with one scale per row are in the fit
    start = Setup(
        shape, machines, plan, Batch(sequence, 1, 1), trainer, request.precision,
        zero_stage(plan, trainer) if zero is None else zero, frozen=request.adapter_rank > 0, objective=objective,
        adapter_rank=request.adapter_rank, base_bits=request.base_bits, optimizer=request.optimizer,
        context=context_kind(request, plan, shape, trainer),
        rowwise=published, float8="" if published else request.float8, float8_gather=request.float8_gather,
        offload_part=request.offload_activations, zero_bubble=zero_bubble,
    )  # fmt: skip
    return choose_batch(start, sequences, replace(request, recompute="none") if zero_bubble else request, c)


def refuse_options(request: PredictRequest, plan: ParallelPlan) -> None:
    """Options of our trainer, beside another one or where it refuses them."""
    given = {
        "--offload-activations": request.offload_activations > 0,
        "--pipeline-schedule": request.pipeline_schedule != "1f1b",
    }
    for name, stated in given.items():
        if stated and request.trainer != OWN:
            raise UserError(f"{name} is modelled for our trainer only", where="--trainer", fix=f"leave {name} out")
    conflict = schedule_conflict(request.pipeline_schedule, plan, False, request.recompute or "none")
    if conflict:
        raise UserError(conflict, where=f"plan {plan}", fix="--recompute none, or --pipeline-schedule 1f1b")


def refuse_base(request: PredictRequest, trainer: Profile) -> None:
    """Frozen weights as codes (QLoRA) go with adapters, and with a trainer that has them: ours does not."""
    if request.base_bits == 16:
        return
    where = f"--base-bits {request.base_bits}"
    if not request.adapter_rank:
        raise UserError(
            "--base-bits goes with --lora-rank", where=where, fix="weights that are trained are not kept as codes"
        )
    if not trainer.quantised_base:
        able = [f"--trainer {name}" for name, known in profiles().items() if known.quantised_base]
        name = "our trainer" if request.trainer == OWN else trainer.name
        raise UserError(
            f"{name} has no frozen weights in {request.base_bits} bits (QLoRA)", where=where,
            fix=f"--base-bits 16; or, for a framework that has them, {', '.join(able[:-1])} or {able[-1]}",
        )  # fmt: skip


def context_kind(request: PredictRequest, plan: ParallelPlan, shape: ModelShape, trainer: Profile) -> str:
    """How context ranks meet each other's keys: our trainer has three ways, the others are known for their rings."""
    if not trainer.own:
        if request.context and request.trainer != OWN:
            raise UserError("--context is an option of our trainer", fix=f"leave it out for {trainer.name}")
        return "ring"
    kind = request.context or CONTEXTS[0]
    problem = plan.context_problem(kind, shape)
    if problem:
        raise UserError(problem, where=f"plan {plan}", fix="--context ring, or gather")
    return kind


def refuse_precision(chip: Device, precision: str) -> None:
    """An accelerator without units for a precision cannot train in it."""
    if precision in ("fp8", "fp4") and not getattr(chip, precision):
        have = [name for name in ("bf16", "fp8", "fp4") if getattr(chip, name)]
        raise UserError(
            f"{chip.name} has no {precision} units", where="--precision", fix=f"use {' or '.join(have)}"
        )  # fmt: skip


def read_plan(plan: ParallelPlan | str, gpus: int) -> tuple[ParallelPlan, int | None]:
    """The plan and, where the text names one (`zero=1`), the ZeRO stage. Open data axes are filled to use every GPU."""
    if isinstance(plan, ParallelPlan):
        text, completed, zero = str(plan), plan if plan.world == gpus else None, None
    else:
        text, zero = split_zero(plan)
        completed = complete(parse_axes(text), gpus)
    if completed is None:
        raise UserError(
            f"the plan does not use all of the {gpus} GPUs, and no number of data ranks makes it do so",
            where=f"plan {text}", fix=f"axes whose product is {gpus}; shard and replicate are filled in where left out",
        )  # fmt: skip
    return completed, zero


def split_zero(text: str) -> tuple[str, int | None]:
    """A plan's text without its `zero=` item, and that item's number."""
    items = [item.strip() for item in text.split(",")]
    stages = [item.partition("=")[2].strip() for item in items if item.partition("=")[0].strip() == "zero"]
    if not stages:
        return text, None
    if len(stages) > 1 or stages[0] not in ZERO_STAGES:
        raise UserError(
            f"zero={', zero='.join(stages)} is not a ZeRO stage", where="--parallel",
            fix="zero=0 shards nothing, 1 the optimizer state, 2 gradients too, 3 weights too; give one",
        )  # fmt: skip
    return ",".join(item for item in items if item.partition("=")[0].strip() != "zero"), int(stages[0])


def refuse_misfit(plan: ParallelPlan, shape: ModelShape, sequence: int) -> None:
    problem = plan.misfit(shape, sequence)
    if problem:
        raise UserError(problem, where=f"plan {plan}", fix=plan.fix(shape, plan.world, sequence, 0))


def shared_sequences(tokens: int | None, sequence: int, ranks: int) -> int:
    """A batch in tokens is a target: the nearest number of sequences that the data ranks can share in microbatches."""
    share = (tokens or ranks * sequence) / sequence / ranks
    unit = 1 if share < 3 else 2 if share < 8 else 2 ** max(2, math.floor(math.log2(share / 4)))
    return max(1, round(share / unit) * unit) * ranks


def choose_batch(s: Setup, sequences: int, request: PredictRequest, c: Constants) -> Setup:
    """The microbatch and recomputation that give the fastest step that fits, among those the request allows."""
    share, left = divmod(sequences, s.plan.data)
    if left or share < 1:
        near = max(1, round(sequences / s.plan.data)) * s.plan.data
        raise UserError(
            f"a batch of {sequences} sequences does not divide over {s.plan.data} data ranks",
            where="--batch",
            fix=f"--batch {near * s.sample_tokens} (tokens), that is {near} sequences",
        )
    options = []
    for size in (request.micro_batch,) if request.micro_batch else MICRO_BATCHES:
        if share % size:
            continue
        option = replace(s, batch=Batch(s.batch.sequence, size, share // size))
        chosen = request.recompute
        options.append(replace(option, recompute=chosen) if chosen else least_recompute(option, c))
    if not options:
        raise UserError(
            f"{share} sequences per data rank are not a multiple of the microbatch {request.micro_batch}",
            where="--micro-batch",
            fix=f"a divisor of {share}",
        )
    limit = TIGHT * s.cluster.device.memory
    fitting = [option for option in options if memory(option, c).total <= limit and host_fits(option)]
    return min(
        fitting or [min(options, key=lambda option: memory(option, c).total)],
        key=lambda option: step_time(option, c).total,
    )
