"""Everything a run needs, checked and built before the first step: model, plan, data, engine, checkpoints."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.base_choice import choose_base
from trainwright.train.base_pin import Base, absolute, depends_on_base
from trainwright.train.base_weights import load_base
from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.manifest import shape_numbers
from trainwright.train.checkpoint.stores import FolderStore, open_store
from trainwright.train.config import Interval, TrainConfig, parse_interval
from trainwright.train.data.loader import Loader, Options, Samples
from trainwright.train.data.named import require_one_tokenizer
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.float8.recipes import DEFAULT
from trainwright.train.lora import LoRAOptions
from trainwright.train.metrics import require_trackers
from trainwright.train.micro_batch import choose_micro_batch
from trainwright.train.models.adapter_shape import refuse_adapters
from trainwright.train.models.shape import ModelShape, lookup
from trainwright.train.objectives import name_for, objective_for
from trainwright.train.objectives.base import Objective
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel.pipeline_schedule import is_zero_bubble, schedule_conflict
from trainwright.train.parallel.pipeline_schedule import schedule as schedule_of
from trainwright.train.parallel.plan import ParallelPlan, complete, parse_axes
from trainwright.train.schedule import Schedule
from trainwright.train.world import World, broadcast_from_first, on_all_ranks

LONGEST_DEFAULT = 8192


@dataclass(frozen=True)
class Parts:
    """The parts of a run."""

    config: TrainConfig  # with every default filled in
    folder: Path
    shape: ModelShape
    objective: Objective
    engine: Engine
    base: Base | None  # what checkpoints of this run depend on
    loader: Loader
    eval_loader: Loader | None
    schedule: Schedule
    checkpointer: Checkpointer
    saves: bool  # with --checkpoint-every never, checkpoints are only read
    interval: Interval


@dataclass(frozen=True)
class Checked:
    """What was checked before anything large is built."""

    config: TrainConfig  # with every default filled in
    shape: ModelShape
    objective: Objective
    plan: ParallelPlan
    samples: Samples
    eval_samples: Samples | None
    schedule: Schedule
    interval: Interval


def assemble(config: TrainConfig, world: World) -> Parts:
    """Check the configuration against model, machine and data on every rank, then build the parts."""
    checked = on_all_ranks(world, lambda: check(config, world))
    choice = choose_base(checked.config, world)
    config, folder = replace(checked.config, base=choice.named), Path(checked.config.folder)
    engine = Engine(checked.shape, checked.plan, engine_options(config), world.device, checked.objective)
    engine.notes.extend(choice.notes)
    base = choice.base
    if base is not None:
        on_all_ranks(world, lambda: load_base(engine, base))
        checked.objective.based(engine)
    pin = world.device.type == "cuda"
    config = replace(config, micro_batch=choose_micro_batch(config, engine, checked.samples, world, folder))
    micro, rank, ranks = config.micro_batch, engine.data_rank, engine.data_world
    held = checked.eval_samples
    eval_loader = None if held is None else Loader(held, micro * ranks, micro, rank, ranks, pin)
    saves = checked.interval != Interval()
    return Parts(
        config=config,
        folder=folder,
        shape=checked.shape,
        objective=checked.objective,
        engine=engine,
        base=base if depends_on_base(asdict(config)) else None,
        loader=Loader(checked.samples, config.batch, micro, rank, ranks, pin),
        eval_loader=eval_loader,
        schedule=checked.schedule,
        checkpointer=open_checkpoints(
            config, folder, model_identity(checked.shape, config.lora_rank, config.optimizer), world, saves
        ),
        saves=saves,
        interval=checked.interval,
    )


def check(config: TrainConfig, world: World) -> Checked:
    """Raise the first problem; cheap checks come first."""
    require_trackers(config.tensorboard, config.wandb)
    shape = lookup(config.model)
    interval = parse_interval(config.checkpoint_every)
    plan = plan_of(config.parallel, world.size)
    config = with_defaults(config, shape, plan, world)
    schedule = Schedule(config.schedule, config.lr, config.steps, config.warmup, config.decay, config.min_lr)
    plan.check(shape, world.size, config.sequence, config.batch)
    require_trainable(config, plan, shape)
    if config.async_tp:
        require_async(config, plan, world.device.type)
    objective = objective_for(config, shape)
    samples = open_data(config, config.data, objective)
    eval_samples = open_eval_samples(config, objective)
    trained, evaluated = samples.tokenizer_id, eval_samples.tokenizer_id if eval_samples else None
    if trained and evaluated:
        require_one_tokenizer(trained, evaluated, f"--eval-data {' '.join(config.eval_data)}")
    micro_batch = config.micro_batch or 1
    Loader(samples, config.batch, micro_batch, 0, plan.data)
    if plan.pp > 1:
        schedule_of(0, plan.pp, plan.virtual_stages, config.batch // (plan.data * micro_batch))
    return Checked(config, shape, objective, plan, samples, eval_samples, schedule, interval)


def require_trainable(config: TrainConfig, plan: ParallelPlan, shape: ModelShape) -> None:
    """Refuse adapters without the weights that they adapt, and under plans that cut the layers they belong to; and
    heads that cannot be exchanged."""
    problem = plan.context_problem(config.context, shape)
    if problem:
        raise UserError(problem, where=f"plan {plan}", fix="--context ring, or gather")
    if config.float8_gather and config.float8 != DEFAULT:
        what = "only weights with one scale per tensor are gathered in float8"
        raise UserError(what, where=f"--float8-gather with {scaling(config)}", fix=f"--float8 {DEFAULT}")
    if config.float8_gather and config.offload_activations:
        what = "gathered float8 weights would wait in host memory with the activations"
        raise UserError(what, where="--offload-activations", fix="--no-float8-gather, or --offload-activations 0")
    if config.float8_gather and plan.shard * plan.cp == 1:
        raise UserError("--float8-gather, but no weights are sharded", where=f"plan {plan}", fix="--no-float8-gather")
    conflict = schedule_conflict(config.pipeline_schedule, plan, bool(config.compile), config.recompute)
    if conflict:
        fix = "--no-compile --recompute none, or --pipeline-schedule 1f1b"
        raise UserError(conflict, where=f"plan {plan}", fix=fix)
    unsupported = plan.unsupported(shape, config.objective, config.lora_rank > 0)
    if unsupported:
        raise UserError(unsupported, where=f"plan {plan}", fix=f"shard={plan.world}")
    refuse_adapters(shape, config.lora_rank, config.objective)
    if config.lora_rank and not config.base:
        raise UserError("--lora-rank without the weights that it adapts", fix="--base FOLDER")


def require_async(config: TrainConfig, plan: ParallelPlan, device: str) -> None:
    """Refuse to overlap where there is nothing to overlap, or no compiler to do it."""
    needs = {
        "tensor parallelism, and tp is 1": plan.tp > 1,
        "GPUs: a CPU has no symmetric memory": device == "cuda",
        "compiled blocks": config.compile,
        "precision bf16: the compiler does not split float8 products": config.precision == "bf16",
    }
    for need, met in needs.items():
        if not met:
            raise UserError(f"--async-tp needs {need}", where=f"plan {plan}", fix="--no-async-tp")


def scaling(config: TrainConfig) -> str:
    return f"--float8 {config.float8}" if config.float8 else f"--precision {config.precision}"


def plan_of(text: str, world: int) -> ParallelPlan:
    """The plan a text means for that many ranks: an open data axis takes the ranks that are left."""
    return complete(parse_axes(text), world) or ParallelPlan.parse(text)


def with_defaults(config: TrainConfig, shape: ModelShape, plan: ParallelPlan, world: World) -> TrainConfig:
    """Fill in the defaults that depend on the model and the machine."""
    compiles = world.device.type == "cuda" and not is_zero_bubble(config.pipeline_schedule, plan)
    return replace(
        config,
        objective=name_for(config.objective, shape),
        base=absolute(config.base),
        folder=config.folder or os.environ.get("TRAINWRIGHT_RUN") or f"runs/{shape.name}",
        sequence=config.sequence or min(shape.longest_sequence, LONGEST_DEFAULT),
        batch=config.batch or (config.micro_batch or 1) * plan.data * plan.pp,
        parallel=str(plan),
        precision=config.precision or default_precision(config, world),
        float8=config.float8 or (DEFAULT if config.precision == "fp8" else ""),
        compile=compiles if config.compile is None else config.compile,
        decay=config.decay or (max(1, config.steps // 10) if config.schedule == "wsd" else 0),
    )


def default_precision(config: TrainConfig, world: World) -> str:
    return "fp8" if config.float8 else "bf16" if world.device.type == "cuda" else "fp32"


def open_data(config: TrainConfig, names: tuple[str, ...], objective: Objective, held: bool = False) -> Samples:
    options = Options(
        config.sequence,
        config.seed,
        config.shuffle,
        config.isolate,
        0.0 if names is config.eval_data else config.holdout,
    )
    return objective.open_data(names, options, Path(config.cache) if config.cache else None, held)


def open_eval_samples(config: TrainConfig, objective: Objective) -> Samples | None:
    """The samples for evaluation: their own data, or the held-out share of the training data."""
    if config.eval_data:
        return open_data(config, config.eval_data, objective)
    if config.holdout:
        return open_data(config, config.data, objective, held=True)
    if config.eval_every:
        raise UserError("--eval-every without data to evaluate on", fix="--holdout 0.01, or --eval-data FOLDER")
    return None


def engine_options(config: TrainConfig) -> EngineOptions:
    return EngineOptions(
        precision=config.precision,
        float8=config.float8 or DEFAULT,
        float8_gather=config.float8_gather,
        compile=bool(config.compile),
        recompute=config.recompute,
        async_tp=config.async_tp,
        offload_activations=config.offload_activations,
        context=config.context,
        pipeline_schedule=config.pipeline_schedule,
        attention=config.attention,
        seed=config.seed,
        max_norm=config.clip,
        optimizer=AdamWOptions(
            config.optimizer, (config.beta1, config.beta2), eps=config.eps, weight_decay=config.weight_decay
        ),
        offload_optimizer=config.offload_optimizer,
        deterministic=config.deterministic,
        lora=LoRAOptions(config.lora_rank, config.lora_alpha) if config.lora_rank else None,
    )


def open_checkpoints(
    config: TrainConfig, folder: Path, model: dict[str, Any], world: World, saves: bool
) -> Checkpointer:
    where = config.checkpoint_to or str(folder / "checkpoints")
    store = open_store(where, folder / "scratch")
    if saves and isinstance(store, FolderStore):
        require_shared(store.root, world)
    return Checkpointer(store, Retention(config.keep_last, config.keep_every), world.device, model)


def require_shared(root: Path, world: World) -> None:
    """Require that rank 0 can write to the folder and every rank sees it: files on the disks of several nodes never
    make a complete checkpoint."""
    probe = root / broadcast_from_first(world, f".probe-{os.urandom(6).hex()}")
    on_all_ranks(world, lambda: write_probe(probe) if world.first else None)
    try:
        on_all_ranks(world, lambda: require_probe(probe))
    finally:
        if world.first:
            probe.unlink(missing_ok=True)


def write_probe(probe: Path) -> None:
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
    except OSError as error:
        raise UserError(
            f"cannot write to the checkpoint folder: {error.strerror}",
            where=str(probe.parent),
            fix="another --checkpoint-to or --folder, or --checkpoint-every never",
        ) from error


def require_probe(probe: Path) -> None:
    if not probe.exists():
        raise UserError(
            "this rank does not see what rank 0 writes: the checkpoint folder is not shared between the nodes",
            where=str(probe.parent),
            fix="--checkpoint-to a folder on a shared file system, or s3://bucket/prefix",
        )


def model_identity(shape: ModelShape, lora_rank: int = 0, optimizer: str = "") -> dict[str, Any]:
    """The numbers that identify a model, as JSON types; a checkpoint of adapters is not one of a whole model, and Muon
    keeps fewer moments than AdamW."""
    kind = {"optimizer": "muon" if optimizer == "muon" else "adamw"} if optimizer else {}
    return shape_numbers(shape) | {"lora_rank": lora_rank} | kind
