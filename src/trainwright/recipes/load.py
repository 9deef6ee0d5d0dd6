"""Finding recipes: ours by name, a user's own by path, and the debug size of any of them."""

from __future__ import annotations

from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.recipes.model import Recipe
from trainwright.spec.job import Batch, Checkpoint
from trainwright.spec.renamed import RECIPE, modernise
from trainwright.spec.source import parse, read_text
from trainwright.spec.validate import validated

FOLDER = Path(__file__).with_name("data")
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
    """The recipes that come with Trainwright."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def recipe(name: str) -> Recipe:
    """A recipe by name, by the path of a file, or `NAME-debug` for the size that trains on a laptop."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return _read(Path(name))
    if name in names():
        return _read(FOLDER / f"{name}.yaml")
    if name.endswith(DEBUG) and name.removesuffix(DEBUG) in names():
        return debug(_read(FOLDER / f"{name.removesuffix(DEBUG)}.yaml"))
    hint = did_you_mean(name.removesuffix(DEBUG), names())
    raise UserError(f"no recipe {name!r}", fix=hint or "`trainwright recipes list` shows them; a path names your own")


def header(name: str) -> str:
    """The comment on top of a recipe's file: how to run it and what to expect."""
    path = FOLDER / f"{name.removesuffix(DEBUG)}.yaml" if "/" not in name and not name.endswith(".yaml") else Path(name)
    lines = []
    for line in read_text(path).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def debug(full: Recipe) -> Recipe:
    """The same recipe at a size that trains on a laptop: same family and features, few and small layers."""
    changes = {
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
    }
    return Recipe.model_validate(full.model_copy(update=changes).model_dump())


def _debug_options(full: Recipe) -> dict[str, str | bool | int | float]:
    """No held-out data and no weights that a laptop does not have: adapters start from random ones."""
    kept = {name: value for name, value in full.options.items() if name not in ("holdout", "eval_every", "base")}
    return {**kept, **({"base": "random"} if "base" in full.options else {})}


def _read(path: Path) -> Recipe:
    if not path.is_file():
        raise UserError(
            f"no recipe file {str(path)!r}", fix="`trainwright recipes list` shows the ones that come with us"
        )
    documents = parse(read_text(path), str(path))
    if len(documents) != 1:
        raise UserError(f"a recipe file holds one document, not {len(documents)}", where=str(path))
    modernise(documents[0], RECIPE)
    return validated(Recipe, documents[0], str(path))
