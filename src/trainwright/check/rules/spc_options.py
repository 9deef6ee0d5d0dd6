"""SPC: the options that a job gives to another framework, and the values that never reach it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule

if TYPE_CHECKING:  # pydantic comes with it; a foreign file is checked without it
    from trainwright.recipes.model import Recipe
    from trainwright.spec.job import Job
    from trainwright.spec.load import LoadedSpec

Place = tuple[str | int, ...]
# What our own trainer reads from a job; a script or command reads its arguments and its environment.
NOT_PASSED = ("parallel", "batch", "sequence", "precision", "recompute", "optimizer", "data", "steps")


@rule("SPC011", "warning")
def framework_takes_the_options(file: File) -> Iterator[Problem]:
    """The options of a job's command must be options of the framework that it starts.

    Checked for Megatron-LM, Megatron-DeepSpeed, torchtitan, BioNeMo, DINO, fairseq, verl, MaxText, neuronx-distributed
    and others, which are known by their script or module: an unknown option, a value that is no number where one is
    needed, a choice that does not exist. An option that only resembles a known one is an error. So are the `args` of a
    job whose recipe names a framework, and in a recipe file of your own its `options`, the keys of its configuration
    `file`, and its `command`, at their lines there.

    Why: the parser of the framework stops every rank, after the wait in the queue and the start of the container
    (images of training have 10 to 25 GB).

    Fix: write the option that is meant.

    Source: the argument parsers of these frameworks (`catalog/data/framework_flags.tsv.gz`); awsome-distributed-ai
    (size of images).

    When to ignore: a fork or a newer version of the framework has the option.
    """
    if not file.specs:  # what a job is resolved by takes long to import
        return
    from trainwright.catalog.framework_flags import check_options, framework_of
    from trainwright.check.launches.recipe_options import recipe_problems
    from trainwright.jobs.select import recipe_path

    for spec in file.specs:
        for index, job in enumerate(spec.loaded.spec.jobs):
            placed = [(word, ("jobs", index, *path)) for word, path in _words(job)]
            framework, start = framework_of([word for word, _ in placed])
            if job.recipe:
                path = recipe_path(spec.loaded, index)
                recipe = _recipe(path or job.recipe)
                if recipe is not None and path:
                    yield from recipe_problems(Path(path), recipe)
                yield from _unknown_arguments(spec.loaded, index, recipe)
                framework, start = _table_of(recipe), 0
            for mistake in check_options(framework, [word for word, _ in placed[start:]]):
                level: Level = "error" if mistake.fix.startswith("did you mean") else "warning"
                span = spec.loaded.span(*placed[start + mistake.index][1])
                yield problem(span, mistake.what, mistake.fix, level=level)


def _recipe(name: str) -> Recipe | None:
    """A recipe by name or path; None where it cannot be read, which SPC004 reports."""
    from trainwright.errors import UserError
    from trainwright.recipes.load import recipe

    try:
        return recipe(name)
    except UserError:
        return None


def _table_of(recipe: Recipe | None) -> str:
    """The table of the framework whose options the `args` of a job are; empty for our trainer."""
    from trainwright.jobs.frameworks import known_framework

    known = known_framework(recipe)
    return known.flags or "" if known is not None else ""


def _unknown_arguments(loaded: LoadedSpec, index: int, recipe: Recipe | None) -> Iterator[Problem]:
    """The `args` of a job whose framework is run by a program of ours, which has no table in the catalog."""
    from trainwright.check.launches.recipe_options import OptionTable, option_problem
    from trainwright.recipes.entry_options import entry_options

    if recipe is None or recipe.trainer == "trainwright" or _table_of(recipe):
        return
    table = OptionTable(f"our program of recipe {loaded.spec.jobs[index].recipe!r}", entry_options(recipe.trainer))
    words = loaded.spec.jobs[index].args if table.options else ()
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            continue
        following = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else True
        wrong = option_problem(table, name, value if equals else following)
        if wrong is not None:
            yield problem(loaded.span("jobs", index, "args", at), *wrong[:2], level=wrong[2])


def _words(job: Job) -> list[tuple[str, Place]]:
    """What a rank runs, each word with its place: also inside `bash -c '...; exec command'`."""
    if job.recipe:
        return _args(job)
    if job.script:
        return [("python", ("script",)), (job.script, ("script",)), *_args(job)]
    words: list[tuple[str, Place]] = [(word, ("command", at)) for at, word in enumerate(job.command)]
    if job.command[:2] == ("bash", "-c") and len(job.command) > 2:
        line = job.command[2].rpartition("exec ")[2]
        if line.startswith('"$@"'):
            words = words[4:]
        else:
            try:
                words = [(word, ("command", 2)) for word in shlex.split(line)]
            except ValueError:  # an open quote: bash will say so
                words = []
    return [*words, *_args(job)]


def _args(job: Job) -> list[tuple[str, Place]]:
    return [(word, ("args", at)) for at, word in enumerate(job.args)]


@rule("SPC012", "info")
def script_gets_no_values(file: File) -> Iterator[Problem]:
    """Values beside a job's `script` or `command` are for checks and predictions: the script does not get them.

    Reported once per job, at the first of them: `steps`, `batch`, `sequence`, `parallel`, `precision`, `recompute`,
    `optimizer`, `data`. The same of what a recipe file of your own states beside a `command` that has no place for it.

    Why: a script runs with its own defaults, such as the 1 process per node of torchrun, whatever stands there, and
    the run is not what the file says.

    Fix: pass them in `args` or `env`, in the script's own words; keep those that describe the run for `predict`.

    Source: the spec itself: `args` and `env` are all that a script or command receives; torch,
    `torch.distributed.run`.

    When to ignore: they say what `args` say, so that `predict` knows the run.
    """
    if not file.specs:  # what a job is resolved by takes long to import
        return
    from trainwright.jobs.select import recipe_path

    for spec in file.specs:
        for index, job in enumerate(spec.loaded.spec.jobs):
            path = recipe_path(spec.loaded, index)
            if path and (recipe := _recipe(path)) is not None:
                yield from _unplaced(path, recipe)
            stated = [name for name in NOT_PASSED if getattr(job, name) is not None]
            if not stated or not (job.script or job.command):
                continue
            spans = [spec.loaded.span("jobs", index, name) for name in stated]
            kind, names = "script" if job.script else "command", ", ".join(f"`{name}`" for name in stated)
            what = f"the {kind} of job {job.name!r} does not get {names}: only checks and predictions read them"
            yield problem(min(spans, key=lambda span: (span.line, span.column)), what, "pass them in `args` or `env`")


def _unplaced(path: str, recipe: Recipe) -> Iterator[Problem]:
    """What a recipe states, and its own command does not get."""
    from trainwright.jobs.foreign import unplaced_of_recipe
    from trainwright.recipes.load import place_in

    lost = unplaced_of_recipe(recipe)
    if lost:
        names = ", ".join(f"`{'.'.join(one)}`" for one in lost)
        what = f"the command of the recipe has no place for {names}: only checks and predictions read them"
        fix = "put its {place} into the command"
        yield problem(place_in(Path(path), lost[0]), what, fix)
