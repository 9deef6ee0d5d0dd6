"""Recipes of another trainer: any command, with the job's values put where it has `{steps}`, `{sequence}` and the like,
or a framework that we know (`jobs/frameworks.py`). What a job states and the other trainer has no place for would never
reach it: it is a problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from trainwright.errors import did_you_mean
from trainwright.jobs.places import DERIVED, places_in, values
from trainwright.jobs.places import filled as fill
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.job import Checkpoint, Job

if TYPE_CHECKING:
    from trainwright.jobs.resolved import ResolvedJob

Path = tuple[str, ...]  # of a value in a job
Problem = tuple[Path, str, str]  # (path, what, fix)

# What a job may state -> the place of a command that carries it to another trainer.
PLACES: dict[Path, str] = {
    ("model",): "model",
    ("data",): "data",
    ("steps",): "steps",
    ("sequence",): "sequence",
    ("precision",): "precision",
    ("float8",): "float8",
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
    ("objective",): "objective",
}
# What only a recipe may state.
RECIPE_PLACES: dict[Path, str] = {
    ("optimizer", "final"): "final",
    ("optimizer", "betas"): "beta1",
    ("optimizer", "weight_decay"): "weight_decay",
    ("optimizer", "clip"): "clip",
}
KNOWN = (*dict.fromkeys(PLACES.values()), *DERIVED)


def unplaced(job: Job, recipe: Recipe) -> Iterator[Problem]:
    """A problem for each value that the recipe's command cannot say, and for each place without a value."""
    assert isinstance(recipe.trainer, Foreign)
    used = places_in(recipe.trainer.command)
    for path, place in PLACES.items():
        if place not in used and is_stated(job, path):
            yield (
                path,
                f"recipe {job.recipe!r} runs another trainer, and its command has no place for `{'.'.join(path)}`",
                f"put {{{place}}} into the recipe's command, or remove it and pass the trainer's own option in `args`",
            )
    yield from unknown_places(f"the command of recipe {job.recipe!r}", used)
    yield from without_value(job, recipe, used)


def unplaced_of_recipe(recipe: Recipe) -> list[Path]:
    """What a recipe states, and its own command has no place for. Steps and checkpoints every recipe has; an axis is
    part of the plan, which the ranks and the other axes give too."""
    if not isinstance(recipe.trainer, Foreign) or not recipe.trainer.command:
        return []
    used = places_in(recipe.trainer.command)
    carried = {"min_lr": "final", "local_batch": "samples", "accumulation": "samples", "tokens_per_step": "samples"}
    used |= {carried[place] for place in used if place in carried}
    skipped = ("steps", "checkpoint", "parallel", "model")
    return [
        path for path, place in {**PLACES, **RECIPE_PLACES}.items()
        if path[0] not in skipped and place not in used and states(recipe, path)
    ]  # fmt: skip


def states(recipe: Recipe, path: Path) -> bool:
    """Whether the recipe's file itself has the value."""
    if path[0] not in recipe.model_fields_set:
        return False
    part = getattr(recipe, path[0])
    if len(path) > 1 and path[1] not in part.model_fields_set:
        return False
    if path[0] == "data" and recipe.data.startswith("builtin:"):
        return False  # whatever the framework takes to try things out
    return is_stated(recipe, path)


def unknown_places(where: str, used: set[str]) -> Iterator[Problem]:
    for name in sorted(used - set(KNOWN)):
        hint = did_you_mean(name, KNOWN) or f"there are: {', '.join(KNOWN)}"
        yield ("recipe",), f"{where} names {{{name}}}, which nothing is called", hint


def without_value(job: Job, recipe: Recipe, used: set[str]) -> Iterator[Problem]:
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


def is_stated(job: Job | Recipe, path: Path) -> bool:
    """Whether a job states a value; an axis of 1 asks for nothing."""
    value: Any = job
    for name in path:
        value = getattr(value, name, None)
    return value is not None and not (path[0] == "parallel" and value == 1)


def foreign_command(job: ResolvedJob, folder: FilePath | None = None) -> tuple[str, ...]:
    """The command of one rank; `folder` is the run folder as the nodes see it."""
    assert job.recipe is not None
    assert isinstance(job.recipe.trainer, Foreign)
    known = values(job, folder)
    return (*(str(fill(word, known)) for word in job.recipe.trainer.command), *job.job.args)
