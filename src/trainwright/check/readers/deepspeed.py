"""DeepSpeed's JSON configuration. Its rules look at the document itself."""

from __future__ import annotations

from trainwright.check.model import File
from trainwright.spec.source import Node

_BATCHES = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
_SECTIONS = {"zero_optimization", "fp16", "bf16", "optimizer", "scheduler", "activation_checkpointing"}
_OTHERS = {"base_model", "model_name_or_path", "datasets", "dataset"}  # a trainer's own file, which names its model


def recognise(root: Node) -> bool:
    keys = set(root.value)
    return "zero_optimization" in keys or (bool(keys & _BATCHES) and bool(keys & _SECTIONS) and not keys & _OTHERS)


def read(file: File) -> None:
    """Nothing to lift into the model."""
