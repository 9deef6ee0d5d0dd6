"""An adopted job as a recipe: the options of a framework that we know become our values, by the same data file that
turns our values into its options; what is left stays an option of the framework. Any other program stays a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.catalog.framework_flags import framework_of
from trainwright.catalog.models import known_shapes
from trainwright.errors import UserError
from trainwright.jobs.places import PLACE, SHAPE
from trainwright.recipes.framework import Framework, framework, frameworks

AXES = ("tp", "pp", "cp", "ep", "virtual_stages")
CHOICES = ("precision", "recompute", "schedule")  # values that are words: each stands for some options
SHAPED = ("layers", "hidden", "heads")  # what tells a model from another
STEPS = 1_000
FIELDS = {  # places that a recipe has a field for
    "steps", "sequence", "samples", "micro_batch", "lr", "min_lr", "warmup", "weight_decay", "clip", "beta1", "beta2",
    "checkpoint_steps", "data", *AXES,
}  # fmt: skip


def recipe_of(job: Mapping[str, Any], title: str) -> dict[str, Any]:
    """A recipe file's content for a job of an adopted spec."""
    command = [*map(str, job.get("command", ())), *map(str, job.get("args", ()))]
    if not command:
        raise UserError("the file runs a script of its own: there is no command to make a recipe of",
                        fix="`trainwright adopt` makes a job of it")  # fmt: skip
    name, known, start = _known(command)
    container = {"container": job["container"]} if job.get("container") else {}
    if known is None:
        trainer: dict[str, Any] = {"command": command, **container}
        return {"title": title, "trainer": trainer, "steps": STEPS, "checkpoint": {"steps": STEPS}}
    given = _options(command[start:])
    values = _values(known, given)
    left = {option: value for option, value in given.items() if not _is_said(known, option, given, values)}
    entry = {"entry": command[:start]} if command[:start] != list(known.entry) else {}
    trainer = {"framework": name, **entry, **container, **({"options": left} if left else {})}
    return {"title": title, **_fields(values), "trainer": trainer}


def _known(command: list[str]) -> tuple[str, Framework | None, int]:
    """The framework whose options a command has, and where they begin; only those that take all of them there."""
    flags, start = framework_of(command)
    for name in frameworks() if flags else ():
        known = framework(name)
        if known.flags == flags and known.config is None:
            return name, known, start
    return "", None, 0


def _options(words: list[str]) -> dict[str, Any]:
    """Options by name: a switch is true, `--name value` and `key=value` have one value, or several."""
    options: dict[str, Any] = {}
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        if equals:
            options[name] = value
            continue
        taken = []
        while at < len(words) and not words[at].startswith("--"):
            taken.append(words[at])
            at += 1
        options[name] = True if not taken else taken[0] if len(taken) == 1 else taken
    return options


def _values(known: Framework, given: Mapping[str, Any]) -> dict[str, Any]:
    """Our values, by place, as the options give them."""
    values: dict[str, Any] = {}
    for part in known.parts():
        for option, text in part.options.items():
            place = PLACE.fullmatch(text) if isinstance(text, str) else None
            if place and option in given and place[1] not in values and not isinstance(given[option], bool | list):
                values[place[1]] = _number(given[option])
    for choice in CHOICES:
        if word := _choice(known, choice, given):
            values[choice] = word
    model = _model(values)
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


def _model(values: Mapping[str, Any]) -> str:
    """The model of the catalog with that shape, where the options say it."""
    if not all(name in values for name in SHAPED):
        return ""
    wanted = tuple(values[name] for name in SHAPED)
    return next((name for name, shape in known_shapes().items()
                 if (shape.layers, shape.hidden, shape.heads) == wanted), "")  # fmt: skip


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


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
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
        "checkpoint": {"steps": min(int(values.get("checkpoint_steps", steps)), int(steps))},
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
