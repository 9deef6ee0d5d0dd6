"""An adopted job as a recipe: the options of a framework that we know become our values, by the same data file that
turns our values into its options; what is left stays an option of the framework. Any other program stays a command."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.catalog.framework_flags import framework_of
from trainwright.catalog.models import ModelShape, known_shapes
from trainwright.errors import UserError
from trainwright.jobs.places import PLACE, SHAPE, places_in, shape_values
from trainwright.recipes.framework import Framework, framework, frameworks

AXES = ("tp", "pp", "cp", "ep", "virtual_stages")
CHOICES = ("precision", "recompute", "schedule")  # values that are words: each stands for some options
SHAPED = ("layers", "hidden", "heads")  # without these no model is looked for
CONTEXT = ("context_length", "kv_copies", "family")  # of a run or of our catalog, not of a model's shape
WORDS = ("position", "norm", "activation", "tied", "bias")  # of a shape: each stands for some options
ABSENT = ("query_groups", "experts")  # what a model has not where the options do not state it
STEPS = 1_000
# Options that the framework's file adds and a script's recipe keeps: what `logs`, `resume` and time limits rely on.
KEPT = re.compile(r"log|signal|timeout|^--(save|load|ckpt)", re.I)
# What programs around the Trainer of Hugging Face, and those of Neuron, call the numbers of a run.
USUAL = {"--max_steps": "steps", "--save_steps": "checkpoint_steps", "--checkpoint_freq": "checkpoint_steps"}
WIDESPREAD = ("llama2", "llama3", "gpt", "mixtral", "qwen")  # named first where several models have one shape
FIELDS = {  # places that a recipe has a field for
    "steps", "sequence", "samples", "micro_batch", "lr", "min_lr", "warmup", "weight_decay", "clip", "beta1", "beta2",
    "checkpoint_steps", "data", *AXES,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdoptedRecipe:
    """A recipe file's content, and what a reader must know of it: what was not understood, chosen or left behind."""

    content: dict[str, Any]
    notes: list[str]


def recipe_of(job: Mapping[str, Any], title: str) -> AdoptedRecipe:
    """The recipe of a job of an adopted spec."""
    command = [*map(str, job.get("command", ())), *map(str, job.get("args", ()))]
    if not command:
        raise UserError("the file runs a script of its own: there is no command to make a recipe of",
                        fix="`trainwright adopt` makes a job of it")  # fmt: skip
    name, known, start = _known(command)
    container = {"container": job["container"]} if job.get("container") else {}
    notes = list(_left_behind(job))
    if known is None or (known.start == "torchrun" and _own_launcher(job, command)):
        launcher = {"launcher": job["launcher"]} if job.get("launcher") not in (None, "torchrun") else {}
        trainer: dict[str, Any] = {"command": command, **launcher, **container}
        return _kept(trainer, title, notes, _own_launcher(job, command))
    words, given = _options(command[start:])
    values = _values(known, given, notes)
    left = {option: value for option, value in given.items() if not _is_said(known, option, given, values)}
    left |= _data_options(known, given, values, notes)
    left |= _unasked(known, given, notes)
    values = {**values, **_schedule(known, values, notes)}
    entry = command[:start] if command[:start] != list(known.entry) else []
    if words:
        entry = [*(entry or command[:start]), *words]
        notes.append(f"not understood, kept as words of the program: {' '.join(words)}")
    notes += [f"{option}: {value!r} is set by the shell, which a recipe has not: write its value"
              for option, value in given.items() if "$" in str(value)]  # fmt: skip
    if "steps" not in values:
        notes.append(f"steps: not stated, {STEPS} is written")
    trainer = {"framework": name, **({"entry": entry} if entry else {}), **container}
    trainer |= {"options": left} if left else {}
    return AdoptedRecipe({"title": title, **_fields(values, notes), "trainer": trainer}, notes)


def _own_launcher(job: Mapping[str, Any], command: list[str]) -> str:
    """The program that starts the ranks of a node itself; empty where the job's launcher does."""
    program = Path(command[0]).name
    return program if job.get("launcher") == "plain" and not program.startswith(("python", "bash")) else ""


def _kept(trainer: dict[str, Any], title: str, notes: list[str], own_launcher: str) -> AdoptedRecipe:
    """The recipe of a program that keeps its command, with the steps that the command states."""
    command = trainer["command"]
    shell = command[:2] == ["bash", "-c"]
    words = _shell_words(command[2]) if shell else command
    flags, start = framework_of(words)
    why = "of no framework that we know"
    if shell:
        why = "it needs a shell, for variables that the script does not set"
    elif own_launcher:
        why = f"{own_launcher} starts its ranks"
    elif flags:
        why = f"options of {flags} that have no values of ours"
    notes = [*notes, f"the command is kept as it is, without our values: {why}"]
    given = _options(words[start:])[1]
    usual = {place: number for option, place in USUAL.items() if type(number := _number(given.get(option))) is int}
    stated = {**usual, **(_stated_numbers(flags, given) if flags else {})}
    if "steps" not in stated:
        notes.append(f"steps: not stated in our words, {STEPS} is written")
    steps = stated.get("steps", STEPS)
    checkpoint = {"steps": _reached(stated.get("checkpoint_steps", steps), steps, notes)}
    return AdoptedRecipe({"title": title, "trainer": trainer, "steps": steps, "checkpoint": checkpoint}, notes)


def _reached(every: int, steps: int, notes: list[str]) -> int:
    """A checkpoint's interval that the run reaches."""
    if every > steps:
        notes.append(f"checkpoint: every {every} steps would be none in {steps}: {steps} is written")
    return min(every, steps)


def _unasked(known: Framework, given: Mapping[str, Any], notes: list[str]) -> dict[str, None]:
    """Options with a value of the framework's file that the script leaves at the framework's own: not set here either,
    so that the recipe trains what the script does."""
    literal = [option for option, value in known.options.items() if value is not None and not places_in(value)]
    added = [option for option in literal if option not in given and not KEPT.search(option)]
    if added:
        notes.append(f"not set, as in the script: {', '.join(added)}")
    return dict.fromkeys(added)


def _schedule(known: Framework, values: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """The one schedule of a framework that takes no option for it."""
    words = known.when.get("schedule", {})
    if "schedule" in values or "lr" not in values or len(words) != 1:
        return {}
    notes.append(f"schedule: {next(iter(words))}, the only one of {known.title}")
    return {"schedule": next(iter(words))}


def _shell_words(line: str) -> list[str]:
    """The words of a shell's line; none where only a shell can tell them apart (a here-document)."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _stated_numbers(flags: str, given: Mapping[str, Any]) -> dict[str, int]:
    """The whole numbers that a command states, by our names for them; keys of a framework's file are options too."""
    stated: dict[str, int] = {}
    for known in map(framework, frameworks()):
        for part in known.parts() if known.flags == flags else ():
            for name, text in [*part.options.items(), *part.file.items()]:
                place = PLACE.fullmatch(text) if isinstance(text, str) else None
                number = _number(given.get(name, given.get(f"--{name}")))
                if place and type(number) is int and number > 0:
                    stated.setdefault(place[1], number)
    return stated


def _left_behind(job: Mapping[str, Any]) -> Iterator[str]:
    """What the job says and no recipe holds: it belongs to the job that names the recipe."""
    for key in sorted(set(job) - {"name", "command", "args", "container", "launcher"}):
        value = job[key]
        shown = ", ".join(value) if isinstance(value, dict) else value
        yield f"{key} ({shown}) is no part of a recipe: state it in the job"


def _known(command: list[str]) -> tuple[str, Framework | None, int]:
    """The framework whose options a command has, and where they begin; only those that take all of them there."""
    flags, start = framework_of(command)
    for name in frameworks() if flags else ():
        known = framework(name)
        if known.flags == flags and known.config is None:
            return name, known, start
    return "", None, 0


def _options(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Words without an option, and options by name: a switch is true, `--name value` and `key=value` have one value, or
    several."""
    options: dict[str, Any] = {}
    plain: list[str] = []
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        if equals:
            options[name] = value
            continue
        if not name.startswith("-"):
            plain.append(name)
            continue
        taken = []
        while at < len(words) and not words[at].startswith("--"):
            taken.append(words[at])
            at += 1
        options[name] = True if not taken else taken[0] if len(taken) == 1 else taken
    return plain, options


def _values(known: Framework, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Our values, by place, as the options give them."""
    values: dict[str, Any] = {}
    for part in known.parts():
        for option, text in part.options.items():
            place = PLACE.fullmatch(text) if isinstance(text, str) else None
            usable = option in given and not isinstance(given[option], bool | list) and "$" not in str(given[option])
            if place and usable and place[1] not in values:
                values[place[1]] = _number(given[option])
    for choice in CHOICES:
        if word := _choice(known, choice, given):
            values[choice] = word
    model = _model(known, values, {place: _choice(known, place, given) for place in WORDS}, notes)
    return {**values, **({"model": model} if model else {})}


def _choice(known: Framework, place: str, given: Mapping[str, Any]) -> str:
    """The word whose options the command has, the one with most of them."""
    matching = {
        word: len(part.options) for word, part in known.when.get(place, {}).items()
        if part.options and all(PLACE.search(str(value)) or _same(given.get(option), value)
                                for option, value in part.options.items() if value is not None)
    }  # fmt: skip
    return max(matching, key=lambda word: matching[word], default="")


def _same(given: Any, value: Any) -> bool:
    return given is not None and (given is value or str(given) == str(value))


def _model(known: Framework, values: Mapping[str, Any], words: Mapping[str, str], notes: list[str]) -> str:
    """The model of the catalog with the shape that the options state, all of it. Where several have it, the first;
    where none has it, none: the options stay those of the framework."""
    if not all(name in values for name in SHAPED):
        notes.append("model: the options do not state a shape; name the model, so that it can be predicted")
        return ""
    stated = {place: value for place, value in values.items() if place in SHAPE and place not in CONTEXT}
    stated |= {place: word for place, word in words.items() if word and word != "*"}
    places = {place for part in known.parts() for place in places_in(part.options)}
    absent = {place: None for place in ABSENT if place in places and place not in stated}
    fitting = [name for name, shape in known_shapes().items() if _has(shape, {**stated, **absent})]
    fitting.sort(key=lambda name: not name.startswith(WIDESPREAD))
    sizes = ", ".join(f"{place} {value}" for place, value in stated.items())
    if not fitting:
        notes.append(f"model: none of the catalog has {sizes}: its options stay those of {known.title}, and it cannot "
                     "be predicted")  # fmt: skip
        return ""
    unsaid = [place for place in ("ffn", "vocab") if place not in stated]
    if len(fitting) > 1 or unsaid:
        others = f"; {', '.join(fitting[1:])} would fit too" if fitting[1:] else ""
        missing = f"; not stated: {', '.join(unsaid)}" if unsaid else ""
        notes.append(f"model: {fitting[0]} by {sizes}, which is not certain{others}{missing}")
    return fitting[0]


def _has(shape: ModelShape, stated: Mapping[str, Any]) -> bool:
    own = shape_values(shape, 1)
    return all(_same_number(own[place], value) for place, value in stated.items())


def _same_number(own: Any, stated: Any) -> bool:
    if isinstance(own, int | float) and not isinstance(own, bool) and isinstance(stated, int | float):
        return math.isclose(own, stated, rel_tol=1e-6)
    return str(own) == str(stated)


def _data_options(
    known: Framework, given: Mapping[str, Any], values: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """What keeps the framework from its own sample data where the script has data that is no single path of ours: a
    blend of several, or another option. Sets the recipe's `data` to the first path of a blend."""
    sample = next((part.options for word, part in known.when.get("data", {}).items() if word.startswith("builtin")), {})
    marks = [option for option, value in sample.items() if value is True]
    if "data" in values or not marks or any(option in given for option in marks):
        return {}
    carriers = [option for part in known.parts() for option, text in part.options.items() if text == "{data}"]
    blend = next(((option, given[option]) for option in carriers if isinstance(given.get(option), list)), None)
    if blend is not None:
        paths = [word for word in blend[1] if isinstance(_number(word), str)]
        values["data"] = paths[0]
        notes.append(f"data: {blend[0]} is a blend of {len(paths)} parts, kept as an option of the framework; `data` "
                     "names the first of them only")  # fmt: skip
        return {}
    notes.append(f"data: no single path in the options; {', '.join(marks)} of the framework's file is left out")
    return dict.fromkeys(marks)


def _is_said(known: Framework, option: str, given: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether our values make that option again with that value."""
    for place in CHOICES:
        chosen = known.when.get(place, {}).get(values.get(place, ""))
        if chosen is not None and option in chosen.options and chosen.options[option] is not None:
            return True
    if option in known.options and _same(given[option], known.options[option]):
        return True
    for part in known.parts():
        text = part.options.get(option)
        whole = PLACE.fullmatch(text) if isinstance(text, str) else None
        carried = whole is not None and (whole[1] in FIELDS or (whole[1] in SHAPE and "model" in values))
        if whole and carried and str(_number(given[option])) == str(values.get(whole[1])):
            return True
    return False


def _fields(values: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The fields of a recipe, without those that nothing was said about."""
    lr, lowest = values.get("lr"), values.get("min_lr")
    optimizer = {key: values[key] for key in ("lr", "warmup", "schedule", "weight_decay", "clip") if key in values}
    if lr and lowest is not None:
        optimizer["final"] = float(f"{lowest / lr:.4g}")
    if "beta1" in values and "beta2" in values:
        optimizer["betas"] = [values["beta1"], values["beta2"]]
    axes = {axis: values[axis] for axis in AXES if values.get(axis, 1) != 1}
    batch = {"sequences": values.get("samples"), "micro_batch": values.get("micro_batch")}
    steps = values.get("steps", STEPS)
    fields = {
        "model": values.get("model"),
        "parallel": {"default": {**axes, "rest": "replicate"}},
        "sequence": values.get("sequence"),
        "batch": {key: value for key, value in batch.items() if value is not None},
        "precision": values.get("precision"),
        "recompute": values.get("recompute"),
        "optimizer": optimizer if "lr" in optimizer else None,
        "steps": steps,
        "checkpoint": {"steps": _reached(int(values.get("checkpoint_steps", steps)), int(steps), notes)},
        "data": values.get("data"),
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text
