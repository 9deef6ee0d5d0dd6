"""Recipes of another trainer: its command, with the job's values put where the recipe has `{steps}`, `{sequence}` and
the like. What a job states and the command has no place for would never reach that trainer: it is a problem."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainwright.errors import did_you_mean
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.job import Checkpoint, Job

if TYPE_CHECKING:
    from trainwright.jobs.resolved import ResolvedJob

Path = tuple[str, ...]  # of a value in a job

_PLACE = re.compile(r"\{([a-z_]+)\}")
# What earlier versions called a place; recipes that say so still work.
FORMER = {"tensor": "tp", "pipeline": "pp", "context": "cp", "micro": "micro_batch"}
# What a job may state -> the place of a command that carries it to another trainer.
PLACES: dict[Path, str] = {
    ("model",): "model",
    ("data",): "data",
    ("steps",): "steps",
    ("sequence",): "sequence",
    ("precision",): "precision",
    ("recompute",): "recompute",
    ("batch", "sequences"): "samples",
    ("batch", "tokens"): "samples",
    ("batch", "micro_batch"): "micro_batch",
    **{("parallel", axis): axis for axis in ("tp", "pp", "cp", "ep", "shard", "replicate", "virtual_stages")},
    **{("optimizer", name): name for name in ("lr", "warmup", "schedule", "decay")},
    ("checkpoint", "to"): "checkpoint",
    ("checkpoint", "every"): "checkpoint_every",
    ("checkpoint", "steps"): "checkpoint_steps",
    ("checkpoint", "keep"): "checkpoint_keep",
    ("workers",): "workers",
}
KNOWN = (*dict.fromkeys(PLACES.values()), "ranks")


def unplaced(job: Job, recipe: Recipe) -> Iterator[tuple[Path, str, str]]:
    """(path, what, fix) for each value that the recipe's command cannot say, and for each place without a value."""
    assert isinstance(recipe.trainer, Foreign)
    used = _places(recipe.trainer.command)
    for path, place in PLACES.items():
        if place not in used and _is_stated(job, path):
            yield (
                path,
                f"recipe {job.recipe!r} runs another trainer, and its command has no place for `{'.'.join(path)}`",
                f"put {{{place}}} into the recipe's command, or remove it and pass the trainer's own option in `args`",
            )
    for name in sorted(used - set(KNOWN)):
        hint = did_you_mean(name, KNOWN) or f"there are: {', '.join(KNOWN)}"
        yield ("recipe",), f"the command of recipe {job.recipe!r} names {{{name}}}, which nothing is called", hint
    values: dict[Path, Any] = {
        ("workers",): job.workers,
        ("model",): job.model or recipe.model,
        ("optimizer", "decay"): job.optimizer.decay if job.optimizer else None,
        **{("checkpoint", name): value for name, value in _saving(job.checkpoint, recipe.checkpoint).items()},
    }
    for path, value in values.items():
        if PLACES[path] in used and value is None:
            what = f"{{{PLACES[path]}}} of recipe {job.recipe!r} has no value"
            yield ("recipe",), what, f"state `{'.'.join(path)}` in the job"


def _saving(stated: Checkpoint | None, base: Checkpoint) -> dict[str, Any]:
    """The job's values over the recipe's, one by one; an interval in the job replaces the recipe's."""
    stated = stated or Checkpoint()
    own = stated.model_dump(exclude_none=True)
    replaced = {"every", "steps"} if own.keys() & {"every", "steps"} else set()
    return {**base.model_dump(exclude=replaced), **dict.fromkeys(replaced), **own}


def _is_stated(job: Job, path: Path) -> bool:
    """Whether a job states a value; an axis of 1 asks for nothing."""
    value: Any = job
    for name in path:
        value = getattr(value, name, None)
    return value is not None and not (path[0] == "parallel" and value == 1)


def foreign_command(job: ResolvedJob) -> tuple[str, ...]:
    """The command of one rank."""
    assert job.recipe is not None
    assert isinstance(job.recipe.trainer, Foreign)
    known = values(job)
    words = (_PLACE.sub(lambda place: str(known[_name(place[1])]), word) for word in job.recipe.trainer.command)
    return (*words, *job.job.args)


def values(job: ResolvedJob) -> dict[str, object]:
    """Everything a command may name."""
    training = job.training
    assert training is not None
    plan, optimizer = training.plan, training.optimizer
    return {
        "model": training.model, "data": training.data, "steps": training.steps, "sequence": training.sequence,
        "precision": training.precision, "recompute": training.recompute, "samples": training.batch,
        "micro_batch": training.micro_batch or 1, "tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep,
        "shard": plan.shard, "replicate": plan.replicate, "virtual_stages": plan.virtual_stages,
        "lr": optimizer.lr, "warmup": optimizer.warmup, "schedule": optimizer.schedule, "decay": optimizer.decay,
        "workers": job.job.workers, "ranks": job.ranks, **_checkpoint(training.checkpoint),
    }  # fmt: skip


def _checkpoint(checkpoint: Checkpoint | None) -> dict[str, object]:
    if checkpoint is None:
        return {}
    return {
        "checkpoint": checkpoint.to,
        "checkpoint_every": None if checkpoint.every is None else f"{checkpoint.every:g}",
        "checkpoint_steps": checkpoint.steps,
        "checkpoint_keep": checkpoint.keep,
    }


def _places(command: tuple[str, ...]) -> set[str]:
    return {_name(name) for word in command for name in _PLACE.findall(word)}


def _name(place: str) -> str:
    return FORMER.get(place, place)
