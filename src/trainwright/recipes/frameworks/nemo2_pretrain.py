"""Trains with a recipe of NeMo 2. Each rank runs this under the job's own launcher, so that a job of NeMo is started,
requeued and stopped like every other one; nemo-run builds the recipe and calls it in this process.

    python3 nemo2_pretrain.py settings.json [ATTRIBUTE=VALUE ...]

The file names the recipe's module, `pretrain` or `finetune`, the data, and the attributes to set on the recipe. Further
attributes come as arguments, such as trainer.log_every_n_steps=10; they win."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

RECIPES = "nemo.collections.llm.recipes"
DATA = "nemo.collections.llm.gpt.data"
TOKENIZER = "nemo.collections.common.tokenizers.huggingface.auto_tokenizer"


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


def overrides(words: list[str]) -> dict[str, Any]:
    """The attributes that arguments set; anything else is refused, since nobody would read it."""
    attributes: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not all(name.isidentifier() for name in path.split(".")):
            raise SystemExit(f"NeMo 2 takes attributes of its recipe, such as trainer.max_steps=5, and not {word!r}")
        try:
            attributes[path] = json.loads(text)
        except json.JSONDecodeError:
            attributes[path] = text
    return attributes


def data_module(task: str, data: dict[str, Any], before: Any) -> Any:
    """The data module of real data, in place of the recipe's mock or sample one: tokens of Megatron's format by the
    prefix of their files, or for fine-tuning a folder with training.jsonl and validation.jsonl."""
    import nemo_run as run

    tokenizer = run.Config(import_module(TOKENIZER).AutoTokenizer, pretrained_model_name=data["tokenizer"])
    if task == "finetune":
        module = import_module(f"{DATA}.fine_tuning").FineTuningDataModule
        packed = getattr(before, "packed_sequence_specs", None)
        return run.Config(module, dataset_root=data["path"], tokenizer=tokenizer, packed_sequence_specs=packed)
    module = import_module(f"{DATA}.pre_training").PreTrainingDataModule
    return run.Config(module, paths=[data["path"]], tokenizer=tokenizer, index_mapping_dir=data["cache"])


def build(settings: dict[str, Any], words: list[str]) -> Any:
    """The recipe with the settings of the job."""
    import nemo_run as run
    from nemo.lightning.pytorch.callbacks import PreemptionCallback

    further = overrides(words)
    module = import_module(f"{RECIPES}.{settings['recipe']}")
    make = getattr(module, f"{settings.get('task', 'pretrain')}_recipe")
    recipe = make(**settings.get("arguments", {}))
    if settings.get("precision"):
        recipe.trainer.plugins = getattr(import_module(f"{RECIPES}.precision.mixed_precision"), settings["precision"])()
    recipe.trainer.callbacks = [*(recipe.trainer.callbacks or []), run.Config(PreemptionCallback)]
    if settings.get("data"):
        recipe.data = data_module(settings.get("task", "pretrain"), settings["data"], recipe.data)
    apply(recipe, settings.get("set", {}))
    apply(recipe, further)
    return recipe


def main() -> None:
    import nemo_run as run

    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    run.run(build(settings, sys.argv[2:]), direct=True)


if __name__ == "__main__":
    main()
