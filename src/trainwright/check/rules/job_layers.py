"""JOB: the layer class that FSDP wraps, against the model that the launcher names or its program makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table
from trainwright.check.beside import file_beside
from trainwright.check.launches.named_configs import is_changed, named_configs
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, File, Job, Value, known
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem

_TABLE = Path(__file__).parents[1] / "data" / "layer_classes.csv"
_MODELS = ("model_name_or_path", "model_name", "model_id", "model", "base_model", "pretrained_model_name_or_path")
_KEYS = ("fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap")
# `LlamaForCausalLM.from_pretrained(`, `GPT2LMHeadModel(`, with the name of the weights where it is written there.
_MAKES = re.compile(
    r"\b([A-Z]\w*?)(?:For[A-Z]\w+|LMHeadModel|Model)(?:\.from_pretrained|\._?from_config)?\(\s*(?:[\"']([^\"']+)[\"'])?"
)
_NO_MODEL = ("DataCollator",)
_OWN_POLICY = re.compile(r"FullyShardedDataParallelPlugin|cls_to_wrap|auto_wrap_policy|_no_split_modules")
_ENDINGS = ("DecoderLayer", "Block", "Layer")
_WRAPS = "TRANSFORMER_BASED_WRAP"
_NOT_FOUND = (
    "every rank ends with `Could not find the transformer layer class … in the model`, after the nodes were allocated "
    "and the weights, 16 GB of a model of 8 billion parameters, were read."
)


@cache
def classes() -> Mapping[str, re.Pattern[str]]:
    """Class of a decoder layer -> the names of the models that are made of it."""
    rows = read_table(_TABLE).records()
    return {row["class"]: re.compile(row["names"], re.IGNORECASE) for row in rows}


def layer_classes(file: File, job: Job, launch: Command, folders: list[str] | None) -> Iterator[Problem]:
    """A class of another model, in accelerate's file or among the options of the launcher."""
    own = next((launch.options[key] for key in _KEYS if key in launch.options), None)
    if own is None and launch.program != "accelerate":
        return
    model, wrapped, at = next((launch.options[key] for key in _MODELS if key in launch.options), None), own, own
    for named, path in named_configs(launch):
        other = file_beside(file.path, path, folders)
        if other is None or other.format != "trainer_config" or is_changed(job.script, launch, path):
            continue
        if own is None and named is launch.options.get("config_file"):
            wrapped, at = _of_file(other), named
        elif model is None and other.nodes:
            model = next((value for key in _MODELS if (value := text_at(other.nodes[0], key)) is not None), None)
    if wrapped is None or at is None or not wrapped.known or (model is not None and (not model.known or model.default)):
        return
    name, right = _of_name(model.value) if model is not None else _of_program(program_text(file, launch, folders) or "")
    yield from _compared(at, wrapped, name, right, "" if wrapped is own else f"{at.value}, line {wrapped.span.line}: ")


def _of_name(path: str) -> tuple[str, str]:
    """A model's name and the class of its layers, empty where the table does not have it."""
    name = path.rstrip("/").rpartition("/")[2]
    return name, next((one for one, names in classes().items() if names.fullmatch(name)), "")


def _of_program(text: str) -> tuple[str, str]:
    """The model that a program makes, and the class of its layers; nothing where it makes another, too."""
    if "transformers" not in text or _OWN_POLICY.search(text):
        return "", ""
    made = [(kind, name) for kind, name in _MAKES.findall(text) if kind not in _NO_MODEL]
    models = {_of_name(name) if kind.startswith("Auto") else _of_kind(kind) for kind, name in made}
    return models.pop() if len(models) == 1 else ("", "")


def _of_kind(kind: str) -> tuple[str, str]:
    """`Llama` of LlamaForCausalLM."""
    return kind, next((one for ending in _ENDINGS if (one := kind + ending) in classes()), "")


def _of_file(other: File) -> Value[str] | None:
    root = other.nodes[0] if other.nodes else None
    if root is None or known(text_at(root, "distributed_type")) != "FSDP":
        return None
    policy = known(text_at(root, "fsdp_config", "fsdp_auto_wrap_policy"))
    return text_at(root, "fsdp_config", _KEYS[0]) if policy in (_WRAPS, None) else None


def _compared(at: Value[str], wrapped: Value[str], name: str, right: str, where: str) -> Iterator[Problem]:
    given = [one.strip(" '\"") for one in wrapped.value.split(",")]
    wrong = next((one for one in given if one in classes() and one != right), None)
    if right and wrong is not None:
        yield problem(
            at, f"{where}{wrong} is no layer of {name}: it is made of {right}", f"write {right}", why=_NOT_FOUND
        )
