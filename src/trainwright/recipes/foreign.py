"""Recipes of another trainer: its command, with the job's values put where the recipe has `{steps}`, `{sequence}` and
the like. What a job says and the command has no place for is refused: that trainer would never hear of it."""

from __future__ import annotations

import re

from trainwright.errors import UserError, did_you_mean
from trainwright.recipes.arguments import plan_of, recipe_of, samples_of, warmup_of
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.model import Job

_PLACE = re.compile(r"\{([a-z_]+)\}")
# What earlier versions called a place; recipes that say so still work.
FORMER = {"tensor": "tp", "pipeline": "pp", "context": "cp", "micro": "micro_batch"}
# What a job may say -> the places by which another trainer can hear of it.
HEARD = {
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


def foreign_of(job: Job) -> Foreign | None:
    """The other trainer a job's recipe names, if it does."""
    found = recipe_of(job)
    return found.trainer if found is not None and isinstance(found.trainer, Foreign) else None


def foreign_command(job: Job, ranks: int, instance: str | None) -> tuple[str, ...]:
    """The command of one rank."""
    found = recipe_of(job)
    if found is None or not isinstance(found.trainer, Foreign):
        raise UserError(f"job {job.name!r} names no recipe of another trainer")
    words = found.trainer.command
    used = {FORMER.get(name, name) for word in words for name in _PLACE.findall(word)}
    _refuse_unheard(job, used)
    known = values(job, found, ranks, instance)
    return (*(_filled(word, known, str(job.recipe)) for word in words), *job.args)


def values(job: Job, found: Recipe, ranks: int, instance: str | None) -> dict[str, object]:
    """Everything a command may name; the job goes over the recipe."""
    plan = plan_of(job, ranks, instance)
    sequence = job.sequence or found.sequence
    batch = job.batch or found.batch
    rate = (job.optimizer.lr if job.optimizer else None) or found.optimizer.lr
    return {
        "model": job.model or found.model, "data": job.data or found.data, "steps": job.steps or found.steps,
        "sequence": sequence, "precision": job.precision or found.precision,
        "recompute": job.recompute or found.recompute,
        "samples": samples_of(batch, sequence, plan), "micro_batch": batch.micro_batch or 1,
        "tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep,
        "shard": plan.shard, "replicate": plan.replicate, "lr": rate, "warmup": warmup_of(job), "ranks": ranks,
        "checkpoint": (job.checkpoint or found.checkpoint).to, "workers": job.workers,
    }  # fmt: skip


def _refuse_unheard(job: Job, used: set[str]) -> None:
    for field, places in HEARD.items():
        if getattr(job, field) is not None and not used & set(places):
            raise UserError(
                f"recipe {job.recipe!r} runs another trainer, and its command has no place for `{field}`",
                where=f"job {job.name}: {field}",
                fix=f"put {{{places[0]}}} into the recipe's command, or pass the trainer's own option in `args`",
            )


def _filled(word: str, known: dict[str, object], recipe: str) -> str:
    def value(place: re.Match[str]) -> str:
        name = FORMER.get(place[1], place[1])
        if name not in known:
            raise UserError(f"nothing is called {place[0]}", where=f"recipe {recipe}: trainer.command",
                            fix=did_you_mean(name, known) or f"there are: {', '.join(known)}")  # fmt: skip
        if known[name] is None:
            raise UserError(f"{place[0]} has no value", where=f"recipe {recipe}: trainer.command",
                            fix="say it in the job or in the recipe")  # fmt: skip
        return str(known[name])

    return _PLACE.sub(value, word)
