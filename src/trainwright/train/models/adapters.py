"""Checkpoints of adapters: merged into the weights they adapt, or as a PEFT folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.checkpoint.manifest import Manifest
from trainwright.train.disk import new_folder
from trainwright.train.lora import DOWN, UP, LoRAOptions, apply_lora, is_adapter, spread
from trainwright.train.models import model_class
from trainwright.train.models.hf_layout import Read, huggingface_name, part_names, ungroup
from trainwright.train.models.safetensors import write
from trainwright.train.models.shape import ModelShape


def options_of(manifest: Manifest) -> LoRAOptions:
    saved = manifest.trainer["config"]
    return LoRAOptions(saved["lora_rank"], saved["lora_alpha"])


def adapter_sizes(shape: ModelShape, options: LoRAOptions) -> dict[str, torch.Size]:
    """Every adapter of a model, in order."""
    with torch.device("meta"):
        model = model_class(shape)(shape)
        apply_lora(model, options)
        return {name: param.shape for name, param in model.named_parameters() if is_adapter(name)}


def merged(shape: ModelShape, options: LoRAOptions, base: Read, adapter: Read) -> Read:
    """Reads W + scale B A for the layers with adapters."""
    known = adapter_sizes(shape, options)

    def read(name: str) -> Tensor:
        weight = base(name)
        stem = name.removesuffix("weight")
        if stem + DOWN not in known:
            return weight
        a, b = adapter(stem + DOWN), adapter(stem + UP)
        if ".attention.qkv." in name:
            b = spread(b, (shape.kv_heads, shape.heads // shape.kv_heads, shape.width_per_head))
        return weight + options.scale * (b @ a)

    return read


def write_peft(shape: ModelShape, options: LoRAOptions, adapter: Read, folder: Path, base: str) -> None:
    """A folder that PEFT loads onto the Hugging Face model of that shape."""
    tensors = {k: v for name in adapter_sizes(shape, options) for k, v in _peft(shape, name, adapter(name)).items()}
    needed = sum(tensor.numel() for tensor in tensors.values()) * torch.float32.itemsize
    with new_folder(folder, needed) as beside:
        sizes = {name: tensor.shape for name, tensor in tensors.items()}
        write(beside / "adapter_model.safetensors", sizes, torch.float32, iter(tensors.items()))
        config: dict[str, Any] = {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": True,
            "r": options.rank, "lora_alpha": options.alpha, "lora_dropout": 0.0, "bias": "none",
            "fan_in_fan_out": False,
            "target_modules": sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in tensors}),
        }  # fmt: skip
        (beside / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _peft(shape: ModelShape, name: str, tensor: Tensor) -> dict[str, Tensor]:
    """One adapter under PEFT's names; that of queries, keys and values is three there."""
    stem, kind = name.rsplit(".", 1)
    layer = huggingface_name(shape, stem + ".weight").removesuffix(".weight")
    letter = {DOWN: "A", UP: "B"}[kind]
    if not stem.endswith("qkv"):
        return {f"base_model.model.{layer}.lora_{letter}.weight": tensor}
    if "{part}" not in layer:
        what = f"{shape.family} keeps queries, keys and values in one layer, which PEFT adapts as one"
        raise UserError(what, fix="export without --adapter: the adapters are then merged into the weights")
    parts = tensor.chunk(3) if kind == DOWN else ungroup(shape, tensor)
    names = (layer.replace("{part}", part) for part in part_names(shape))
    return {f"base_model.model.{n}.lora_{letter}.weight": part for n, part in zip(names, parts, strict=True)}
