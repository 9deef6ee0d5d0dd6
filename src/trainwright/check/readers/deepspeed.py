"""DeepSpeed's JSON configuration. Its rules look at the document itself. Other programs use the same names at the top
of their own files (GPT-NeoX, axolotl, scripts of one project): most keys must be DeepSpeed's, and its sections its
own."""

from __future__ import annotations

import re

from trainwright.check.model import File
from trainwright.check.tables import table
from trainwright.spec.source import Node

_BATCHES = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
_ZERO = "zero_optimization"
_OTHERS = {"base_model", "model_name_or_path", "datasets", "dataset"}  # a trainer's own file, which names its model
_NEOX = {"fp16", "type"}  # keys of GPT-NeoX in the section fp16; it completes DeepSpeed's configuration itself
_COMMENT = re.compile(r"^\W|^_|comment", re.IGNORECASE)  # by their name, of keys that nobody reads


def recognise(root: Node) -> bool:
    keys = set(root.value)
    if _ZERO not in keys and not keys & _BATCHES:
        return False
    own = [key for key in keys if not _COMMENT.search(key)]
    others = sum(key not in table("deepspeed")["top"] for key in own)
    if _ZERO in keys:
        return others * 2 <= len(own) and not _is_neox(root)
    return _has_section(root) and others <= max(1, len(own) // 5) and not keys & _OTHERS


def _is_neox(root: Node) -> bool:
    half = root.get("fp16")
    return half is not None and half.is_map and bool(_NEOX & set(half.value))


def _has_section(root: Node) -> bool:
    """Whether a section is of DeepSpeed's shape; `optimizer` and `fp16` are keys of many programs."""
    made = any(root.get(name, "type") is not None and root.get(name, "params") for name in ("optimizer", "scheduler"))
    return made or any(root.get(name, "enabled") is not None for name in ("fp16", "bf16", "activation_checkpointing"))


def read(file: File) -> None:
    """Nothing to lift into the model."""
