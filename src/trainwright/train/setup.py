"""Everything a run needs, put together and checked before the first step: model, plan, data, engine, checkpoints."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.checkpoint.checkpointer import Checkpointer, Keep
from trainwright.train.checkpoint.places import Folder, open_place
from trainwright.train.config import Interval, TrainConfig, parse_interval
from trainwright.train.data.loader import Loader, Options, Samples, open_samples
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.metrics import require_mirrors
from trainwright.train.models.shape import ModelShape, lookup
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel.pipeline import schedule as schedule_of
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.schedule import Schedule
from trainwright.train.world import World, together, told_by_first

LONGEST_DEFAULT = 8192


@dataclass(frozen=True)
class Parts:
    """The parts of a run, ready to go."""

    config: TrainConfig  # with every default filled in
    folder: Path
    shape: ModelShape
    engine: Engine
    loader: Loader
    held: Loader | None
    schedule: Schedule
    checkpointer: Checkpointer | None
    interval: Interval


@dataclass(frozen=True)
class Checked:
    """What is known to fit together before anything large is built."""

    config: TrainConfig  # with every default filled in
    shape: ModelShape
    plan: ParallelPlan
    samples: Samples
    held: Samples | None
    schedule: Schedule
    interval: Interval


def assemble(config: TrainConfig, world: World) -> Parts:
    """Check the configuration against model, machine and data, on every rank, and then build the parts."""
    found = together(world, lambda: check(config, world))
    config, folder = found.config, Path(found.config.folder)
    engine = Engine(found.shape, found.plan, engine_options(config), world.device)
    pin = world.device.type == "cuda"
    micro, rank, ranks = config.micro_batch, engine.data_rank, engine.data_world
    held = None if found.held is None else Loader(found.held, micro * ranks, micro, rank, ranks, pin)
    keeps = found.interval != Interval()
    return Parts(
        config=config,
        folder=folder,
        shape=found.shape,
        engine=engine,
        loader=Loader(found.samples, config.batch, micro, rank, ranks, pin),
        held=held,
        schedule=found.schedule,
        checkpointer=open_checkpoints(config, folder, found.shape, world) if keeps else None,
        interval=found.interval,
    )


def check(config: TrainConfig, world: World) -> Checked:
    """Raise the first thing that cannot work, cheapest first."""
    require_mirrors(config.tensorboard, config.wandb)
    shape = lookup(config.model)
    interval = parse_interval(config.checkpoint_every)
    plan = ParallelPlan.parse(config.parallel or f"shard={world.size}")
    config = fill_in(config, shape, plan, world)
    schedule = Schedule(config.schedule, config.lr, config.steps, config.warmup, config.decay, config.min_lr)
    plan.check(shape, world.size, config.sequence, config.batch)
    samples = open_data(config, config.data, shape)
    held = open_held(config, shape)
    Loader(samples, config.batch, config.micro_batch, 0, plan.data)
    if plan.pp > 1:
        schedule_of(0, plan.pp, plan.virtual_stages, config.batch // (plan.data * config.micro_batch))
    return Checked(config, shape, plan, samples, held, schedule, interval)


def fill_in(config: TrainConfig, shape: ModelShape, plan: ParallelPlan, world: World) -> TrainConfig:
    """The defaults that follow from the model and the machine."""
    return replace(
        config,
        folder=config.folder or os.environ.get("TRAINWRIGHT_RUN") or f"runs/{config.model}",
        sequence=config.sequence or min(shape.context, LONGEST_DEFAULT),
        batch=config.batch or config.micro_batch * plan.data * plan.pp,
        parallel=str(plan),
        precision=config.precision or ("bf16" if world.device.type == "cuda" else "fp32"),
        compile=world.device.type == "cuda" if config.compile is None else config.compile,
        decay=config.decay or (max(1, config.steps // 10) if config.schedule == "wsd" else 0),
    )


def open_data(config: TrainConfig, names: tuple[str, ...], shape: ModelShape, held: bool = False) -> Samples:
    options = Options(
        config.sequence,
        config.seed,
        config.shuffle,
        config.isolate,
        0.0 if names is config.eval_data else config.holdout,
    )
    return open_samples(names, options, Path(config.cache) if config.cache else None, shape.vocab, held)


def open_held(config: TrainConfig, shape: ModelShape) -> Samples | None:
    """What evaluation reads: its own data, or the held-out share of the training data."""
    if config.eval_data:
        return open_data(config, config.eval_data, shape)
    if config.holdout:
        return open_data(config, config.data, shape, held=True)
    if config.eval_every:
        raise UserError("--eval-every without data to evaluate on", fix="--holdout 0.01, or --eval-data FOLDER")
    return None


def engine_options(config: TrainConfig) -> EngineOptions:
    return EngineOptions(
        precision=config.precision,
        compile=bool(config.compile),
        recompute=config.recompute,
        attention=config.attention,
        seed=config.seed,
        max_norm=config.clip,
        optimizer=AdamWOptions(betas=(config.beta1, config.beta2), weight_decay=config.weight_decay),
        offload_optimizer=config.offload_optimizer,
        deterministic=config.deterministic,
    )


def open_checkpoints(config: TrainConfig, folder: Path, shape: ModelShape, world: World) -> Checkpointer:
    where = config.checkpoint_to or str(folder / "checkpoints")
    place = open_place(where, folder / "scratch")
    if isinstance(place, Folder):
        require_shared(place.root, world)
    return Checkpointer(place, Keep(config.keep_last, config.keep_every), world.device, identity(shape))


def require_shared(root: Path, world: World) -> None:
    """Rank 0 can write into the folder and every rank sees it: parts on the disks of several nodes never become a whole
    checkpoint, and no start would ever find one."""
    probe = root / told_by_first(world, f".probe-{os.urandom(6).hex()}")
    together(world, lambda: write_probe(probe) if world.first else None)
    try:
        together(world, lambda: see_probe(probe))
    finally:
        if world.first:
            probe.unlink(missing_ok=True)


def write_probe(probe: Path) -> None:
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
    except OSError as error:
        raise UserError(
            f"cannot write into the folder of checkpoints: {error.strerror}",
            where=str(probe.parent),
            fix="another --checkpoint-to or --folder, or --checkpoint-every never",
        ) from error


def see_probe(probe: Path) -> None:
    if not probe.exists():
        raise UserError(
            "this rank does not see what rank 0 writes: the folder of checkpoints is not shared between the nodes",
            where=str(probe.parent),
            fix="--checkpoint-to a folder on a shared file system, or s3://bucket/prefix",
        )


def identity(shape: ModelShape) -> dict[str, Any]:
    """The numbers that make a model what it is, as JSON knows them."""
    numbers = {k: v for k, v in asdict(shape).items() if k not in ("source", "context")}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in numbers.items()}
