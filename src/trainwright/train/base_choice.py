"""Which base a start reads: the one that is named, the one that the checkpoint pins, or none, where the checkpoint has
all weights."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.train.base_pin import RESUME, Base, absolute, as_pinned, depends_on_base, describe, pin_in
from trainwright.train.checkpoint.manifest import Manifest
from trainwright.train.checkpoint.stores import FolderStore, open_store
from trainwright.train.config import TrainConfig
from trainwright.train.world import World, broadcast_from_first, on_all_ranks, restarted


@dataclass(frozen=True)
class BaseChoice:
    named: str  # what config.json says: the base that the run began with
    base: Base | None  # what is read now
    notes: tuple[str, ...] = ()


def choose_base(config: TrainConfig, world: World) -> BaseChoice:
    """Rank 0's choice, on every rank: a run that is the base may save a new step in between."""
    own = on_all_ranks(world, lambda: json.dumps(asdict(choose(config))) if world.first else "")
    choice = json.loads(broadcast_from_first(world, own))
    base = Base(**choice["base"]) if choice["base"] else None
    return BaseChoice(choice["named"], base, tuple(choice["notes"]))


def choose(config: TrainConfig) -> BaseChoice:
    """Before anything large is built."""
    manifest = resumed(config)
    if manifest is None or "config" not in manifest.trainer:
        idle = "the run begins with the weights of `train import`"
        return _begin(config) if manifest is None else _without_base(config, "", idle)
    saved = manifest.trainer["config"]
    if not depends_on_base(asdict(config)):
        began = absolute(saved.get("base", ""))
        idle = f"the run continues from its checkpoint, and began with{f' {began}' if began else 'out one'}"
        return _without_base(config, began, idle)
    if not depends_on_base(saved):
        return _begin(config)  # refused as soon as the checkpoint is read
    require_same_scale(config, manifest)
    pin = pin_in(manifest)
    if pin is None:
        base = describe(config.base, seed=config.seed, remedy=RESUME)
        what = "note: the checkpoint does not say what its base was (an earlier version wrote it)"
        return BaseChoice(config.base, base, (f"{what}: {base} is taken as it is now",))
    base = as_pinned(config.base, pin, RESUME, config.seed)
    return BaseChoice(config.base, base, _kept_step(base))


def _begin(config: TrainConfig) -> BaseChoice:
    base = describe(config.base, seed=config.seed) if config.base else None
    return BaseChoice(config.base, base, _kept_step(base) if depends_on_base(asdict(config)) else ())


def _kept_step(base: Base | None) -> tuple[str, ...]:
    """The step of another run that must not be removed there."""
    if base is None or base.step is None:
        return ()
    return (f"base: step {base.step} of {base.place}; keep it as long as this run is resumed or exported",)


def _without_base(config: TrainConfig, began: str, why: str) -> BaseChoice:
    idle = config.base not in ("", began)
    return BaseChoice(began, None, (f"note: --base {config.base} has no effect: {why}",) if idle else ())


def resumed(config: TrainConfig) -> Manifest | None:
    """The manifest of the checkpoint that this start continues from, unless its files turn out to be damaged."""
    resume = "auto" if restarted(os.environ) else config.resume
    folder = Path(config.folder)
    own = FolderStore(folder / "checkpoints")
    stores = [open_store(config.checkpoint_to, folder / "scratch")] if config.checkpoint_to else []
    for store in [*stores, own] if resume == "auto" else [*stores, own][:1]:
        steps = [] if resume == "never" else store.complete_steps()
        if resume.isdecimal():
            steps = [step for step in steps if step == int(resume)]
        if steps:
            return store.manifest(steps[0])
    return None


def require_same_scale(config: TrainConfig, manifest: Manifest) -> None:
    """Adapters mean what they were trained for only at their own scale, alpha / rank."""
    saved, wanted = manifest.trainer["config"].get("lora_alpha"), config.lora_alpha
    if config.lora_rank and manifest.model.get("lora_rank") == config.lora_rank and saved not in (None, wanted):
        raise UserError(
            f"the checkpoint was trained with --lora-alpha {saved:g}, this run has --lora-alpha {wanted:g}",
            where=f"{config.folder}, step {manifest.step}",
            fix=f"--lora-alpha {saved:g}, or another --folder",
        )
