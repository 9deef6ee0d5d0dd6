"""Recipes of another trainer: its command, with the job's values put where the recipe has `{steps}`, `{sequence}` and
the like. What a job states and the command has no place for would never reach that trainer: it is a problem."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.errors import did_you_mean
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.model import Job

if TYPE_CHECKING:
    from trainwright.jobs.resolved import ResolvedJob

_PLACE = re.compile(r"\{([a-z_]+)\}")
# What earlier versions called a place; recipes that say so still work.
FORMER = {"tensor": "tp", "pipeline": "pp", "context": "cp", "micro": "micro_batch"}
# What a job may state -> the places of a command that carry it to another trainer.
PLACES = {
    "model": ("model",),
    "data": ("data",),
    "steps": ("steps",),
    "sequence": ("sequence",),
    "precision": ("precision",),
    "recompute": ("recompute",),
    "batch": ("samples", "micro_batch"),
    "parallel": ("tp", "pp", "cp", "ep", "shard", "replicate"),
    "optimizer": ("lr", "warmup"),
    "checkpoint": ("checkpoint",),
    "workers": ("workers",),
}
KNOWN = (*(place for places in PLACES.values() for place in places), "ranks")


def unplaced(job: Job, recipe: Recipe) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(path, what, fix) for all that the recipe's command cannot say."""
    assert isinstance(recipe.trainer, Foreign)
    used = _places(recipe.trainer.command)
    for field, places in PLACES.items():
        if getattr(job, field) is not None and not used & set(places):
            yield (
                (field,),
                f"recipe {job.recipe!r} runs another trainer, and its command has no place for `{field}`",
                f"put {{{places[0]}}} into the recipe's command, or pass the trainer's own option in `args`",
            )
    for name in sorted(used - set(KNOWN)):
        hint = did_you_mean(name, KNOWN) or f"there are: {', '.join(KNOWN)}"
        yield ("recipe",), f"the command of recipe {job.recipe!r} names {{{name}}}, which nothing is called", hint
    stated = {
        "workers": job.workers,
        "checkpoint": (job.checkpoint or recipe.checkpoint).to,
        "model": job.model or recipe.model,
    }
    for name in sorted(used & set(stated)):
        if stated[name] is None:
            field = "checkpoint.to" if name == "checkpoint" else name
            yield ("recipe",), f"{{{name}}} of recipe {job.recipe!r} has no value", f"state `{field}` in the job"


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
        "shard": plan.shard, "replicate": plan.replicate, "lr": optimizer.lr,
        "warmup": optimizer.warmup, "ranks": job.ranks,
        "checkpoint": training.checkpoint.to if training.checkpoint else None, "workers": job.job.workers,
    }  # fmt: skip


def _places(command: tuple[str, ...]) -> set[str]:
    return {_name(name) for word in command for name in _PLACE.findall(word)}


def _name(place: str) -> str:
    return FORMER.get(place, place)
