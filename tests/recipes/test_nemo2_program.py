"""The program that runs NeMo 2's recipes, with a stand-in of NeMo: a configuration takes only what the class under it
takes, as nemo-run's does. With nemo-run itself the same settings were built by hand."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from resolving import resolved
from trainwright.jobs.frameworks import framework_launch
from trainwright.recipes.framework import FOLDER


class Config:
    """Arguments for a class, checked by its signature."""

    def __init__(self, target: Callable[..., Any], **arguments: Any) -> None:
        self.__dict__["target"], self.__dict__["known"] = target, set(inspect.signature(target).parameters)
        for name, value in arguments.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.known:
            raise AttributeError(f"{self.target.__name__} takes no {name}")
        self.__dict__[name] = value


def mock_data(seq_length: int, global_batch_size: int, micro_batch_size: int) -> None: ...
def tokens(paths: Any, seq_length: int, tokenizer: Any, micro_batch_size: int, global_batch_size: int,
           index_mapping_dir: str) -> None: ...  # fmt: skip
def answers(dataset_root: str, seq_length: int, tokenizer: Any, micro_batch_size: int, global_batch_size: int,
            packed_sequence_specs: Any) -> None: ...  # fmt: skip
def tokenizer_of(pretrained_model_name: str) -> None: ...


class Free:
    """An attribute of a recipe that takes everything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = None if name in ("callbacks", "plugins") else Free()
        return self.__dict__[name]


def recipe_of(**arguments: Any) -> Any:
    recipe = Free()
    recipe.data = Config(mock_data)
    return recipe


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """nemo2_pretrain.py, with the modules that it imports on a node."""
    parts: dict[str, dict[str, Any]] = {
        "nemo_run": {"Config": Config},
        "nemo.lightning.pytorch.callbacks": {"PreemptionCallback": Free},
        "nemo.collections.llm.recipes.llama31_8b": {"pretrain_recipe": recipe_of, "finetune_recipe": recipe_of},
        "nemo.collections.llm.recipes.precision.mixed_precision": {"bf16_mixed": Free},
        "nemo.collections.llm.gpt.data.pre_training": {"PreTrainingDataModule": tokens},
        "nemo.collections.llm.gpt.data.fine_tuning": {"FineTuningDataModule": answers},
        "nemo.collections.common.tokenizers.huggingface.auto_tokenizer": {"AutoTokenizer": tokenizer_of},
    }
    for name, attributes in parts.items():
        for depth in range(1, name.count(".") + 1):
            parent = ".".join(name.split(".")[:depth])
            monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent) or ModuleType(parent))
        module = ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("nemo2_pretrain", FOLDER / "nemo2_pretrain.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def settings_of(recipe: str, **job: Any) -> dict[str, Any]:
    resolution = resolved({"recipe": recipe, **job}, 1, "p5.48xlarge")
    launch = framework_launch(resolution, Path("/fsx/r"), Path("/fsx/r/code"))
    settings: dict[str, Any] = json.loads(launch.files["nemo2.json"])
    return settings


def test_real_data_takes_the_data_module_that_reads_it(program: ModuleType) -> None:
    recipe = program.build(settings_of("nemo2-llama-180m-custom", data="/fsx/data/mine/mine_text_document"), [])
    assert recipe.data.target is tokens
    assert recipe.data.paths == ["/fsx/data/mine/mine_text_document"]
    assert recipe.data.tokenizer.pretrained_model_name.endswith("/models/llama-180m")
    assert (recipe.data.seq_length, recipe.data.global_batch_size) == (1024, 512)
    mock = program.build(settings_of("nemo2-llama-180m"), [])
    assert mock.data.target is mock_data
    tuned = program.build({**settings_of("nemo2-llama-180m-custom", data="/fsx/answers"), "task": "finetune"}, [])
    assert (tuned.data.target, tuned.data.dataset_root) == (answers, "/fsx/answers")


def test_arguments_are_attributes_of_the_recipe_or_refused(program: ModuleType) -> None:
    settings = settings_of("nemo2-llama-180m")
    recipe = program.build(settings, ["trainer.max_steps=7", "data.seq_length=64", "log.name=mine"])
    assert (recipe.trainer.max_steps, recipe.data.seq_length, recipe.log.name) == (7, 64, "mine")
    with pytest.raises(SystemExit, match="not '--max_steps'"):
        program.build(settings, ["--max_steps", "7"])
    with pytest.raises(AttributeError, match="takes no sequence"):
        program.build(settings, ["data.sequence=64"])
