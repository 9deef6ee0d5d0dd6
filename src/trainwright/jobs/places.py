"""The places of another trainer's command and options, `{steps}` and the like: what each stands for in one job. What a
framework derives from our values is computed here once, by the rules that its own source has."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.jobs.runtime import shared_root
from trainwright.spec.job import Checkpoint

if TYPE_CHECKING:
    from trainwright.jobs.resolved import OptimizerSettings, ResolvedJob, Training
    from trainwright.train.models.shape import ModelShape

NULL = "{null}"  # in a configuration file: the key with null, where leaving it out means something else
PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
# What earlier versions called a place; recipes that say so still work.
FORMER = {"tensor": "tp", "pipeline": "pp", "context": "cp", "micro": "micro_batch"}
SHAPE = (
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "context_length", "head_dim", "experts",
    "experts_per_token", "rope_theta", "norm_eps", "query_groups", "family", "activation", "norm", "position", "tied",
    "bias", "kv_copies", "qk_norm", "qkv_bias", "rope_factor",
)  # fmt: skip
# Places that follow from others, or from where the job runs.
DERIVED = (
    "ranks", "nodes", "processes", "dp", "local_batch", "accumulation", "tokens_per_step", "train_samples",
    "warmup_samples", "decay_steps", "decay_fraction", "warmup_fraction", "min_lr", "final",
    "weight_decay", "decay_per_step", "beta1", "beta2", "clip",
    "checkpoint_folder", "folder", "run", "code", "config", "shared", "null", "data_prefix",
    "first_stage_layers", "last_stage_layers", *SHAPE,
)  # fmt: skip


def name_of(place: str) -> str:
    return FORMER.get(place, place)


def places_in(value: Any) -> set[str]:
    """Every place that a value names, in texts, lists and mappings."""
    if isinstance(value, str):
        return {name_of(name) for name in PLACE.findall(value)}
    if isinstance(value, Mapping):
        return {place for one in value.values() for place in places_in(one)}
    if isinstance(value, list | tuple):
        return {place for one in value for place in places_in(one)}
    return set()


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """A value with its places filled in. A text that is one place keeps the type of what it stands for; None where a
    place has no value."""
    if isinstance(value, Mapping):
        inner = {key: filled(one, known) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one is not None}
    if isinstance(value, list | tuple):
        return [filled(one, known) for one in value]
    if not isinstance(value, str):
        return value
    whole = PLACE.fullmatch(value)
    if whole:
        return known.get(name_of(whole[1]))
    if any(known.get(place) is None for place in places_in(value)):
        return None
    return PLACE.sub(lambda place: str(known[name_of(place[1])]), value)


def values(job: ResolvedJob, folder: Path | None = None, code: Path | None = None) -> dict[str, Any]:
    """Everything that a command or an option may name; `folder` is the run folder as the nodes see it."""
    training = job.training
    assert training is not None
    plan = training.plan
    return {
        "model": training.model, "objective": training.objective, "data": training.data,
        "data_prefix": data_prefix(training.data),
        "steps": training.steps, "sequence": training.sequence,
        "precision": training.precision, "float8": training.float8, "recompute": training.recompute,
        "samples": training.batch,
        "micro_batch": training.micro_batch or 1, "workers": job.job.workers,
        **{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)},
        "ranks": job.ranks, "nodes": job.placement.nodes, "processes": job.placement.processes,
        **_batch(training), **_optimizer(training.optimizer, training), **shape_values(training.shape, plan.tp),
        **_stages(training.shape, plan.pp), **_checkpoint(training.checkpoint, folder), **_folders(folder, code),
        "shared": shared_root(job.spec).removesuffix("/trainwright"),
    }  # fmt: skip


def data_prefix(data: str | None) -> str | None:
    """What Megatron's preprocessing is given to make the data: it adds the key of the text and `document`."""
    return data.removesuffix("_text_document") if data and data.endswith("_text_document") else None


def _batch(training: Training) -> dict[str, Any]:
    """How frameworks count a step: the share of a data rank, and in how many passes it is worked off."""
    data = training.plan.data
    local = max(1, training.batch // data)
    steps, warmup = training.steps, training.optimizer.warmup
    return {
        "dp": data,
        "local_batch": local,
        "accumulation": max(1, local // (training.micro_batch or 1)),
        "tokens_per_step": training.tokens_per_step,
        "train_samples": steps * training.batch if steps else None,
        "warmup_samples": warmup * training.batch if warmup is not None else None,
        "warmup_fraction": _share(warmup, steps),
    }


def _optimizer(optimizer: OptimizerSettings, training: Training) -> dict[str, Any]:
    beta1, beta2 = optimizer.betas or (None, None)
    tail = optimizer.decay
    if tail is None and optimizer.schedule == "wsd" and training.steps:
        tail = max(1, training.steps // 10)  # as our trainer does
    return {
        "lr": optimizer.lr, "warmup": optimizer.warmup, "schedule": optimizer.schedule, "decay": optimizer.decay,
        # Over the whole run unless the job says so: a rate that never decays is a common mistake.
        "decay_steps": tail or training.steps,
        "decay_fraction": _share(tail, training.steps),
        "final": optimizer.final, "min_lr": _product(optimizer.lr, optimizer.final),
        "weight_decay": optimizer.weight_decay, "decay_per_step": _product(optimizer.lr, optimizer.weight_decay),
        "clip": optimizer.clip, "beta1": beta1, "beta2": beta2,
    }  # fmt: skip


def _product(one: float | None, other: float | None) -> float | None:
    return float(f"{one * other:.6g}") if one is not None and other is not None else None


def _share(part: int | None, whole: int | None) -> float | None:
    return float(f"{part / whole:.6g}") if part is not None and whole else None


def shape_values(shape: ModelShape | None, tp: int) -> dict[str, Any]:
    """The places of a model's shape."""
    if shape is None:
        return dict.fromkeys(SHAPE)
    other = {
        "experts": shape.experts or None, "experts_per_token": shape.experts_per_token or None,
        "rope_theta": int(shape.rope_theta) if shape.rope_theta.is_integer() else shape.rope_theta,
        # Llama 3.1 stretches its positions by four numbers, of which frameworks take the first.
        "rope_factor": shape.rope_scaling[0] if shape.rope_scaling and len(shape.rope_scaling) == 4 else None,
        "query_groups": shape.kv_heads if shape.kv_heads < shape.heads else None,
        "kv_copies": max(1, tp // shape.kv_heads),
        "context_length": shape.context, "head_dim": shape.width_per_head,
    }  # fmt: skip
    return {name: other[name] if name in other else getattr(shape, name) for name in SHAPE}


def _stages(shape: ModelShape | None, pp: int) -> dict[str, int]:
    """The layers of the first and the last pipeline stage, where they cannot be shared out evenly: Megatron gives all
    stages between them the same number. The ends hold the embedding and the loss, and so have fewer."""
    if shape is None or shape.layers % pp == 0:
        return {}
    between = -(-shape.layers // pp)
    between -= shape.layers - between * (pp - 2) < 2
    ends = shape.layers - between * (pp - 2)
    return {"first_stage_layers": ends - ends // 2, "last_stage_layers": ends // 2}


def _checkpoint(checkpoint: Checkpoint | None, folder: Path | None) -> dict[str, Any]:
    own = f"{folder}/checkpoints" if folder is not None else None
    if checkpoint is None:
        return {"checkpoint_folder": own}
    return {
        "checkpoint": checkpoint.to,
        "checkpoint_folder": checkpoint.to or own,
        "checkpoint_every": None if checkpoint.every is None else f"{checkpoint.every:g}",
        "checkpoint_steps": checkpoint.steps,
        "checkpoint_keep": checkpoint.keep,
    }


def _folders(folder: Path | None, code: Path | None) -> dict[str, Any]:
    if folder is None:
        return {}
    return {"folder": str(folder), "run": folder.name, "code": str(code) if code is not None else None}
