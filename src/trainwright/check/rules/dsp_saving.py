"""DSP: weights that a program saves, and that ZeRO-3 does not gather for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.named_configs import texts_beside
from trainwright.check.model import File, Value, known
from trainwright.check.readers.values import bool_at, int_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_KEY = "stage3_gather_16bit_weights_on_model_save"
_KEYS = (_KEY, "stage3_gather_fp16_weights_on_model_save", "gather_16bit_weights_on_model_save")
_OF_ACCELERATE = "zero3_save_16bit_model"
# A call whose answer, whether anything was saved, nobody looks at.
_SAVES = re.compile(r"^[ \t]*[\w.]+\.save_(16bit|fp16)_model\(", re.MULTILINE)
_GATHERS = re.compile(r"\baccelerator\.get_state_dict\(")
# A program that gathers the weights itself, or saves otherwise in stage 3.
_KNOWS = re.compile(
    r"16bit_weights|fp16_weights|zero3_save_16bit_model|zero_to_fp32|get_fp32_state_dict|GatheredParameters"
    r"|stage\w*[\"'\]()]*\s*(==|!=|<|>=)\s*[\"']?3|zero_?3"
)
# `config="ds_zero3.json"` names the file; `if name == "ds_zero3.json"` does something about its stage.
_FILE_NAMES = re.compile(r"(?<![\w./-])(?<![=!]= [\"'])(?<!with\([\"'])[\w./-]+\.(json|ya?ml)\b(?![\"'] in )")

_OTHER_STAGE = re.compile(r"zero_?[0-2]", re.IGNORECASE)  # a program with a choice of files may know which it took


def unsaved_weights(file: File, root: Node) -> Iterator[Problem]:
    """save_16bit_model of DeepSpeed, or get_state_dict of accelerate, under ZeRO-3 without gathering."""
    stage, at = _stage_and_key(root)
    if known(stage) != 3 or stage is None or (at is not None and (not at.known or at.value)):
        return
    name = os.path.basename(file.path)
    call = _call(file.path, name, root.get("deepspeed_config") is not None)
    if call:
        own = root.get("deepspeed_config") is None
        key, section = (_KEY, "zero_optimization") if own else (_OF_ACCELERATE, "deepspeed_config")
        yield problem(
            at if at is not None else stage,
            f"{call} is called beside this file, and ZeRO-3 gathers no weights for it: the model is not saved",
            f"write {key}: true" + ("" if at is not None else f" in {section}"),
            level="warning",
            why=reasons.NO_WEIGHTS_SAVED,
        )


def _stage_and_key(root: Node) -> tuple[Value[int] | None, Value[bool] | None]:
    section = root.get("deepspeed_config")
    if section is not None:
        own = section.get("deepspeed_config_file") is None
        return int_at(section, "zero_stage") if own else None, bool_at(section, _OF_ACCELERATE)
    stated = (bool_at(root, "zero_optimization", key) for key in _KEYS)
    return int_at(root, "zero_optimization", "stage"), next((one for one in stated if one is not None), None)


def _call(path: str, name: str, accelerate: bool) -> str:
    """The call of a program that uses the file."""
    for _, text in programs_with(path, name):
        if _KNOWS.search(text if _OTHER_STAGE.search(text) else _FILE_NAMES.sub("", text)):
            continue
        if _SAVES.search(text):
            return "save_16bit_model"
        if _GATHERS.search(text) and (accelerate or "deepspeed_plugin" in text):
            return "get_state_dict"
    return ""


def programs_with(path: str, name: str) -> Iterator[tuple[str, str]]:
    """The programs beside a file that use it: one names it, or a launcher starts it and names the file."""
    named = re.compile(rf"(?<![\w.-]){re.escape(name)}")
    shells = (text for _, text in texts_beside(path, (".sh", ".bash", ".sbatch", ".slurm", ".job")))
    launchers = [text for text in shells if named.search(text)]
    for program, text in texts_beside(path, (".py",)):
        if named.search(text) or any(program in launcher for launcher in launchers):
            yield program, text
