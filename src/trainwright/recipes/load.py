"""Finding recipes: those that come with us by name, a user's own by path, and the debug size of any of them.

`data/` holds the recipes of our trainer, one per file. `foreign/` holds those of other frameworks; a file there may
hold several sizes of one model: `sizes: {8b: …, 70b: …}` makes NAME-8b and NAME-70b, each the file with the keys of its
size over it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from os.path import isfile  # False for a name that no file system takes, where Path raises
from pathlib import Path
from typing import Any, Literal

from trainwright.errors import UserError, did_you_mean
from trainwright.recipes.framework import Settings, matching, shell_line
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.job import Batch, Checkpoint
from trainwright.spec.renamed import RECIPE, modernise
from trainwright.spec.source import Span, parse, read_text
from trainwright.spec.validate import validated

FOLDER = Path(__file__).with_name("data")
FOREIGN = Path(__file__).with_name("foreign")
DEBUG = "-debug"
AXES = ("tp", "pp", "cp", "ep", "virtual_stages")  # of a plan that the debug size does without
STDLIB = "builtin:stdlib"
# What an objective, or a family of models, tries things out on where it is not plain text.
DEBUG_DATA = {
    "dino": "builtin:textures",
    "classify": "builtin:textures",
    "sft": "builtin:chats",
    "esm2": "builtin:proteins",
}


def names() -> list[str]:
    """The recipes of our trainer that come with Trainwright."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def foreign_names() -> list[str]:
    """The recipes of other frameworks that come with Trainwright."""
    return sorted(_foreign_files())


def all_names() -> list[str]:
    return [*names(), *foreign_names()]


def hardware_words(text: str) -> set[str]:
    """What stands for some hardware in a recipe: the text itself, or the accelerators of the instances it names."""
    from trainwright.catalog.instances import find_instance, instance_names

    wanted = text.lower()
    named = [name for name in instance_names() if wanted and (name == wanted or name.startswith(f"{wanted}."))]
    chips = {kind.accelerator for name in named if (kind := find_instance(name)) and kind.accelerator}
    return {wanted, *(chip.partition("-")[0] for chip in chips)}


@cache
def _foreign_files() -> dict[str, tuple[Path, str]]:
    """Recipe -> its file, and the size in it that it is."""
    files: dict[str, tuple[Path, str]] = {}
    for path in sorted(FOREIGN.glob("*.yaml")):
        sizes = _plain(path).get("sizes", {"": {}})
        files |= {f"{path.stem}-{size}" if size else path.stem: (path, size) for size in sizes}
    return files


@cache
def _plain(path: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), loader)
    return plain


def recipe(name: str) -> Recipe:
    """A recipe by name, by the path of a file, or `NAME-debug` for the size that trains on a laptop."""
    return _read(Path(name)) if name.endswith((".yaml", ".yml")) or "/" in name else _named(name)


@cache
def _named(name: str) -> Recipe:
    """A recipe that comes with us; read once, as its file is part of the program."""
    full = name if is_shipped(name) else name.removesuffix(DEBUG)
    if is_shipped(full):
        shipped = _read(FOLDER / f"{full}.yaml") if isfile(FOLDER / f"{full}.yaml") else _foreign(full)
        return shipped if full == name else debug(shipped)
    hint = did_you_mean(full, all_names())
    raise UserError(f"no recipe {name!r}", fix=hint or "`trainwright recipes list` shows them; a path names your own")


def is_shipped(name: str) -> bool:
    return isfile(FOLDER / f"{name}.yaml") or name in _foreign_files()


def _foreign(name: str) -> Recipe:
    """A recipe of another framework: the file, with the keys of its size over it."""
    path, size = _foreign_files()[name]
    if not size:
        return _read(path)
    plain = dict(_plain(path))
    own = plain.pop("sizes")[size] or {}
    trainer = {**plain.get("trainer", {}), **own.get("trainer", {})}
    return Recipe.model_validate({**plain, **own, "trainer": trainer})


def header(name: str) -> str:
    """How to run a recipe, what it needs and what to expect: the comment on top of its file."""
    if name.removesuffix(DEBUG) in _foreign_files():
        this = recipe(name)
        run = f"Run:     trainwright submit --recipe {name} SPEC"
        prepare = [f"Prepare: {line}"] if (line := _prepare(this)) else []
        return "\n".join([this.title, run, f"Needs:   {this.hardware}", *prepare, f"Expect:  {this.expected}"])
    path = FOLDER / f"{name.removesuffix(DEBUG)}.yaml" if "/" not in name and not name.endswith(".yaml") else Path(name)
    lines = []
    for line in read_text(path).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def _prepare(this: Recipe) -> str:
    """The commands that make what the recipe's framework reads, with the places that only a cluster fills. On built-in
    data nothing is prepared but what the framework's file says for them."""
    assert isinstance(this.trainer, Foreign)
    known = this.trainer.known
    builtin = this.data.startswith("builtin:")
    small = (this.model or "").endswith(DEBUG)  # whose weights are random
    parts: list[Settings | None] = [None if small else this.trainer]
    if known is not None:
        parts += [matching(known.when.get("data", {}), this.data), matching(known.models, this.model)]
        parts += [] if builtin else [known]
    words = next((part.prepare for part in parts if part is not None and part.prepare), ())
    here = {"{model}": this.model or "", "{data}": this.data, "{data_prefix}": this.data.removesuffix("_text_document")}
    return shell_line(re.sub(r"\{(model|data|data_prefix)\}", lambda place: here[place[0]], word) for word in words)


def debug(full: Recipe) -> Recipe:
    """The same recipe at a size that trains on a laptop: same family and features, few and small layers."""
    changes: dict[str, Any] = {
        "title": f"{full.title} (debug size)",
        "model": f"{full.model}{DEBUG}" if full.model and not full.model.endswith(DEBUG) else full.model,
        "sequence": min(full.sequence, 128),
        "batch": Batch(tokens=8 * min(full.sequence, 128)),
        "steps": 30,
        "precision": "fp32",
        "recompute": "none",
        "parallel": {"default": full.spread(None).model_copy(update=dict.fromkeys(AXES, 1))},
        "optimizer": full.optimizer.model_copy(update={"warmup": 5, "lr": 1e-3}),
        "checkpoint": Checkpoint(steps=10, keep=2),
        "data": DEBUG_DATA.get((full.model or "").split("-")[0]) or DEBUG_DATA.get(full.objective or "", STDLIB),
        "options": _debug_options(full),
        "trainer": _debug_trainer(full),
    }
    if isinstance(full.trainer, Foreign):
        # Nothing is asked of another framework that the full size does not ask.
        asked = full.model_fields_set | (changes.keys() - {"sequence", "optimizer"})
        small = {"lr": 1e-3, "warmup": 5} if "warmup" in full.optimizer.model_fields_set else {"lr": 1e-3}
        changes["optimizer"] = full.optimizer.model_copy(update=small)
        changes = {name: one for name, one in changes.items() if name in asked}
        words = full.trainer.known.when.get("precision", {}) if full.trainer.known is not None else {"fp32"}
        if "fp32" not in words:
            changes["precision"] = "bf16"
            changes = {name: one for name, one in changes.items() if words or name != "precision"}
        changes |= {"hardware": "this machine, or one GPU", "expected": "a loss that falls"}
    return Recipe.model_validate(full.model_copy(update=changes).model_dump(exclude_unset=True))


def _debug_trainer(full: Recipe) -> Literal["trainwright"] | Foreign:
    """Another framework's trainer with its options for the debug size over the others; no image is needed here."""
    if not isinstance(full.trainer, Foreign) or full.trainer.known is None:
        return full.trainer
    own, known = full.trainer.debug, full.trainer.known.debug
    small = own.over(known).over(full.trainer)
    changes: dict[str, Any] = {"options": small.options, "file": small.file, "env": small.env}
    changes |= {"scripts": (*full.trainer.scripts, *known.scripts, *own.scripts)}
    changes |= {"entry": own.entry or known.entry} if own.entry or known.entry else {}
    return full.trainer.model_copy(update=changes)


def _debug_options(full: Recipe) -> dict[str, str | bool | int | float]:
    """No held-out data and no weights that a laptop does not have: adapters start from random ones."""
    kept = {name: value for name, value in full.options.items() if name not in ("holdout", "eval_every", "base")}
    return {**kept, **({"base": "random"} if "base" in full.options else {})}


def _read(path: Path) -> Recipe:
    if not isfile(path):
        raise UserError(
            f"no recipe file {str(path)!r}", fix="`trainwright recipes list` shows the ones that come with us"
        )
    documents = parse(read_text(path), str(path))
    if len(documents) != 1:
        raise UserError(f"a recipe file holds one document, not {len(documents)}", where=str(path))
    modernise(documents[0], RECIPE)
    return validated(Recipe, documents[0], str(path))


def place_in(path: Path, keys: tuple[str | int, ...]) -> Span:
    """Where a recipe's file states a value, or the deepest part of it that it has."""
    return replace(parse(read_text(path), str(path))[0].span_at(keys), file=str(path))
