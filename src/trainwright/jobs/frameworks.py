"""A recipe of a known framework as what its ranks run: the command, the configuration file and the environment, out of
the framework's data file (`recipes/framework.py`) and the values of the job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwright.catalog.environment import EnvVar
from trainwright.jobs.foreign import PLACES, RECIPE_PLACES, Problem, is_stated, states, unknown_places
from trainwright.jobs.framework_models import unsaid_model
from trainwright.jobs.places import NULL, SHAPE, filled, places_in, values
from trainwright.recipes.config_text import config_text
from trainwright.recipes.framework import Framework, Settings, matching, script_text
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.job import Job
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan

if TYPE_CHECKING:
    from trainwright.jobs.resolved import ResolvedJob, Training

PYTHON = "python3"
Launcher = Literal["srun", "torchrun", "plain"]
STARTS: dict[str, Launcher] = {"torchrun": "torchrun", "rank": "srun", "node": "plain", "ray": "plain"}
# A place that carries the value of another one in the framework's own count.
CARRIES = {
    "checkpoint_folder": "checkpoint", "decay_steps": "decay", "decay_fraction": "decay",
    "train_samples": "steps", "warmup_samples": "warmup", "warmup_fraction": "warmup",
    "tokens_per_step": "samples", "local_batch": "samples", "accumulation": "samples",
    "dp": "replicate", "min_lr": "final", "decay_per_step": "weight_decay", **dict.fromkeys(SHAPE, "model"),
}  # fmt: skip
OF_SHELL = re.compile(r"\$(NODE_RANK|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b")
RUN = Path("/the-run")  # stands for a run's folder where there is none yet
OF_IMAGES = ("/opt/", "/usr/", "/tmp/", "/workspace/")  # folders of the image or of the node, not of the cluster
RAY = "ray_nodes.py"  # makes a Ray cluster of the nodes of a job, whose first node runs the driver


@dataclass(frozen=True)
class FrameworkLaunch:
    """What a framework's ranks run."""

    command: tuple[str, ...]
    options: tuple[str, ...]  # the words of the command that come from our values
    files: Mapping[str, str]  # name -> text; they lie in the folder of the run's code
    environment: tuple[EnvVar, ...]


def known_framework(recipe: Recipe | None) -> Framework | None:
    """The framework of a recipe; None for our trainer and for a plain command."""
    return recipe.trainer.known if recipe is not None and isinstance(recipe.trainer, Foreign) else None


def launcher_of(recipe: Recipe | None) -> Launcher:
    """How a recipe of another trainer starts its ranks."""
    known = known_framework(recipe)
    stated = recipe.trainer.launcher if recipe is not None and isinstance(recipe.trainer, Foreign) else None
    return STARTS[known.start] if known else stated or "torchrun"


def sends_files(recipe: Recipe | None) -> bool:
    """Whether files of a framework go to the nodes with the run: its configuration, or programs of ours."""
    known = known_framework(recipe)
    if known is None or recipe is None or not isinstance(recipe.trainer, Foreign):
        return False
    return known.start == "ray" or bool(known.config or known.scripts or recipe.trainer.scripts)


def framework_launch(job: ResolvedJob, folder: Path, code: Path, python: str = PYTHON) -> FrameworkLaunch:
    """The command, files and environment of a job; `code` is where its files lie on the nodes, `python` what they run
    Python by."""
    recipe = job.recipe
    assert recipe is not None
    trainer = recipe.trainer
    assert isinstance(trainer, Foreign)
    known = trainer.known
    assert known is not None
    here, settings = job_settings(job, folder, code)
    own = [RAY] if known.start == "ray" else []
    files = {name: script_text(name) for name in (*own, *known.scripts, *trainer.scripts)}
    if known.config:
        keys = {key: filled(value, here) for key, value in settings.file.items()}
        said = {key: one for key, one in keys.items() if one is not None or settings.file[key] == NULL}
        files[known.config] = config_text(known.config, said)
    entry = [python if word == PYTHON else str(filled(word, here)) for word in entry_of(recipe)]
    options = [word for name, value in settings.options.items() for word in option_words(name, filled(value, here))]
    environment = tuple(
        EnvVar(name, str(filled(line.value, here)), line.why)
        for name, line in settings.env.items()
        if name not in job.job.env and name not in job.job.secrets
    )
    words = [*entry, *options, *job.job.args]
    ray = [python, str(code / RAY), str(job.placement.nodes)] if own else []
    command = _started([*ray, *words])
    return FrameworkLaunch(command, tuple(options), files, environment)


def job_settings(job: ResolvedJob, folder: Path, code: Path) -> tuple[dict[str, Any], Settings]:
    """The values of a job's places, and its settings with the places still in them."""
    assert job.recipe is not None
    assert isinstance(job.recipe.trainer, Foreign)
    known = job.recipe.trainer.known
    assert known is not None
    here = values(job, folder, code)
    here["config"] = str(code / known.config) if known.config else None
    return here, settings_of(known, job.recipe.trainer, here)


def entry_of(recipe: Recipe) -> tuple[str, ...]:
    """The program of a recipe and its first words."""
    assert isinstance(recipe.trainer, Foreign)
    assert recipe.trainer.known is not None
    return recipe.trainer.entry or recipe.trainer.known.entry


def driver_words(command: tuple[str, ...]) -> tuple[str, ...]:
    """The driver of a command that makes its own Ray cluster; empty where it makes none."""
    return command[3:] if len(command) > 3 and Path(command[1]).name == RAY else ()


def _started(words: list[str]) -> tuple[str, ...]:
    """The words as the launcher runs them: through a shell where a word is one of its variables."""
    if not any(OF_SHELL.search(word) for word in words):
        return tuple(words)
    plain: list[str] = []
    text = "exec"
    for word in words:  # the shell's words stand in its text, the others are handed over as they are
        if OF_SHELL.search(word):
            text += " " + quote_but_variables(word)
        else:
            plain.append(word)
            text += f' "${{{len(plain)}}}"'
    return ("bash", "-c", text, "node", *plain)


def quote_but_variables(word: str) -> str:
    """A word for the shell in which only the variables of the launch are read: `--node_rank="$NODE_RANK"`."""
    text, end = "", 0
    for variable in OF_SHELL.finditer(word):
        before = word[end : variable.start()]
        text += (shlex.quote(before) if before else "") + f'"{variable[0]}"'
        end = variable.end()
    return text + (shlex.quote(word[end:]) if word[end:] else "")


def settings_of(known: Framework, trainer: Foreign, here: Mapping[str, Any]) -> Settings:
    """All settings of a job, later parts over earlier ones; what is null is left out."""
    settings = Settings(options=known.options, file=known.file, env=known.env, prepare=known.prepare)
    model = matching(known.models, here.get("model"))
    if model is not None:
        settings = model.over(settings)
    for place, by_value in known.when.items():
        chosen = matching(by_value, here.get(place))
        if chosen is not None:
            settings = chosen.over(settings)
    settings = trainer.over(settings)
    return Settings(
        options={name: value for name, value in settings.options.items() if value is not None},
        file={name: value for name, value in settings.file.items() if value is not None},
        env=settings.env,
        prepare=settings.prepare,
    )


def option_words(name: str, value: Any) -> list[str]:
    """One option as words: a switch alone, `--name value`, `--name=value` where the key ends with `=`, `key=value`."""
    if value is None:
        return []
    if not name.startswith("-"):
        return [f"{name}={_text(value)}"]
    if name.endswith("="):
        return [f"{name}{_text(value)}"]
    if isinstance(value, bool):
        return [name] if value else []
    return [name, *map(_text, value)] if isinstance(value, list) else [name, _text(value)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value)


# What cannot be said to a framework.


def unsaid(job: Job, recipe: Recipe, training: Training | None) -> Iterator[Problem]:
    """A problem for each value of job or recipe that the framework has no option for, or no word."""
    trainer = recipe.trainer
    assert isinstance(trainer, Foreign)
    known = trainer.known
    assert known is not None
    used = said_by(known, trainer)
    yield from unknown_places(f"the framework {trainer.framework!r}", used - {"config"})
    used |= {CARRIES[place] for place in used if place in CARRIES} | set(known.implied)
    used |= {"micro_batch"} if "accumulation" in used else set()
    for path, place in PLACES.items():
        if path[0] == "parallel":
            asked = training is not None and getattr(training.plan, place) > 1
        else:
            asked = is_stated(job, path) or _recipe_states(recipe, path)
        if path == ("recompute",) and training is not None and training.recompute == "none":
            asked = False
        if asked and place not in used:
            yield _no_option(known, path, ("recipe", *path) if not is_stated(job, path) else path)
    for path, place in RECIPE_PLACES.items():
        if _recipe_states(recipe, path) and place not in used:
            yield _no_option(known, path, ("recipe", *path))
    yield from _without_word(job, recipe, training, known)
    yield from _on_s3(job, training, known)
    for path, what, fix in unsaid_model(known, training):
        yield path if is_stated(job, path) else ("recipe", *path), what, fix


def _no_option(known: Framework, path: tuple[str, ...], at: tuple[str, ...]) -> Problem:
    name = ".".join(path)
    return at, f"{known.title} has no option for `{name}`", "leave it out, or pass the framework's own option in `args`"


def dropped(job: ResolvedJob) -> Iterator[Problem]:
    """A problem for each value of the job that its other values keep from the framework: the steps of a decay, under a
    schedule that has none."""
    assert job.recipe is not None
    trainer = job.recipe.trainer
    assert isinstance(trainer, Foreign)
    known = trainer.known
    assert known is not None
    settings = settings_of(known, trainer, values(job, Path("run"), Path("code")))
    variables = [line.value for line in settings.env.values()]
    texts = [trainer.entry or known.entry, settings.options, settings.file, variables]
    used = {place for text in texts for place in places_in(text)} | set(known.when) | set(known.implied) | {"model"}
    used |= {CARRIES[place] for place in used if place in CARRIES}
    used |= {"micro_batch"} if "accumulation" in used else set()
    for path, place in PLACES.items():
        if path[0] != "parallel" and is_stated(job.job, path) and place not in used and job.job.recipe is not None:
            what = f"`{'.'.join(path)}` does not reach {known.title} beside the job's other values"
            yield path, what, "leave it out, or change what it goes with (a decay needs `schedule: wsd`)"


def said_by(known: Framework, trainer: Foreign) -> set[str]:
    """The places that reach the framework."""
    parts = [*known.parts(), trainer]
    texts = [known.entry, trainer.entry, *(one.options for one in parts), *(one.file for one in parts)]
    used = {place for text in texts for place in places_in(text)}
    used |= {place for one in parts for line in one.env.values() for place in places_in(line.value)}
    return used | set(known.when) | ({"model"} if known.models else set())


def _recipe_states(recipe: Recipe, path: tuple[str, ...]) -> bool:
    """Whether the recipe's file itself has the value. Every recipe has steps and checkpoints, by need or by default."""
    return path[0] not in ("steps", "checkpoint") and states(recipe, path)


def _without_word(job: Job, recipe: Recipe, training: Training | None, known: Framework) -> Iterator[Problem]:
    if training is None:
        return
    own = {
        "model": training.model, "precision": training.precision, "recompute": training.recompute,
        "schedule": training.optimizer.schedule, "data": training.data,
    }  # fmt: skip
    words = {**known.when, **({"model": known.models} if known.models else {})}
    paths = {place: path for path, place in PLACES.items()}
    for place, value in own.items():
        if place in words and value is not None and matching(words[place], value) is None:
            at = paths[place] if is_stated(job, paths[place]) else ("recipe",)
            some = ", ".join(words[place])
            yield at, f"{known.title} has no word for {place} {value!r}", f"it has: {some}"


def _on_s3(job: Job, training: Training | None, known: Framework) -> Iterator[Problem]:
    """Addresses of S3 that the framework would take for paths."""
    if training is None:
        return
    to = training.checkpoint.to if training.checkpoint else None
    for kind, value, path in (("data", training.data, ("data",)), ("checkpoint", to, ("checkpoint", "to"))):
        if value and value.startswith("s3://") and kind not in known.s3:
            at = path if is_stated(job, path) else ("recipe", *path)
            fix = "name a folder of the cluster's file system; a Lustre linked to the bucket shows its objects there"
            yield at, f"{known.title} cannot open {value}: it reads paths", fix


def framework_misfit(known: Framework, plan: ParallelPlan, shape: ModelShape, sequence: int) -> str:
    """Why a plan cannot run a model in that framework; empty where it can. Experts may be spread over all ranks of a
    pipeline stage, and some frameworks copy key-value heads that are too few."""
    if plan.ep > 1 and shape.experts and (shape.experts % plan.ep or plan.data * plan.tp * plan.cp % plan.ep):
        ranks = plan.data * plan.tp * plan.cp
        return f"ep={plan.ep} divides not both {shape.experts} experts and the {ranks} ranks of a stage"
    stages = plan.pp * plan.virtual_stages
    if "last_stage_layers" in places_in(known.options) and plan.virtual_stages > 1 and shape.layers % stages:
        return f"{shape.layers} layers cannot be split into {stages} (pp x virtual_stages)"
    if known.copies_kv_heads:
        shape = replace(shape, kv_heads=shape.heads)
    spread = replace(plan, ep=1) if shape.experts else plan
    return spread.misfit(shape, sequence)
