"""Trains with a recipe of NeMo 2. Each rank runs this under the job's own launcher, so that a job of NeMo is started,
requeued and stopped like every other one; nemo-run builds the recipe and calls it in this process.

    python3 nemo2_pretrain.py settings.json

The file names the recipe's module, `pretrain` or `finetune`, and the attributes to set on it."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

RECIPES = "nemo.collections.llm.recipes"


def flat(tree: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """The attributes as dotted paths."""
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        pairs += flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]
    return pairs


def apply(recipe: Any, tree: dict[str, Any]) -> None:
    """Set each attribute; one that the recipe does not have is an error here and not a value that nobody reads."""
    for path, value in flat(tree):
        *folders, name = path.split(".")
        place = recipe
        for folder in folders:
            place = getattr(place, folder)
        setattr(place, name, value)


def build(settings: dict[str, Any]) -> Any:
    """The recipe with the settings of the job."""
    import nemo_run as run
    from nemo.lightning.pytorch.callbacks import PreemptionCallback

    module = import_module(f"{RECIPES}.{settings['recipe']}")
    make = getattr(module, f"{settings.get('task', 'pretrain')}_recipe")
    recipe = make(**settings.get("arguments", {}))
    if settings.get("precision"):
        recipe.trainer.plugins = getattr(import_module(f"{RECIPES}.precision.mixed_precision"), settings["precision"])()
    recipe.trainer.callbacks = [*(recipe.trainer.callbacks or []), run.Config(PreemptionCallback)]
    apply(recipe, settings.get("set", {}))
    return recipe


def main() -> None:
    import nemo_run as run

    with open(sys.argv[1], encoding="utf-8") as file:
        run.run(build(json.load(file)), direct=True)


if __name__ == "__main__":
    main()
