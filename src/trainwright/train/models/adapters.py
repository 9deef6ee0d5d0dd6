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


TASKS = {"decoder": "CAUSAL_LM", "encoder-decoder": "SEQ_2_SEQ_LM"}  # PEFT's; it has none for the other kinds
ROUTED = ("gate_proj", "up_proj", "down_proj")  # what PEFT takes for routed experts in a model that has some
MERGE = "export without --adapter: the adapters are then merged into the weights"


def write_peft(shape: ModelShape, options: LoRAOptions, adapter: Read, folder: Path, base: str) -> None:
    """A folder that PEFT loads onto the Hugging Face model of that shape."""
    if shape.kind == "vision":
        what = f"transformers 5 renames the layers of {shape.family} when it loads a model, and PEFT does not find them"
        raise UserError(what, fix=MERGE)
    tensors = {k: v for name in adapter_sizes(shape, options) for k, v in _peft(shape, name, adapter(name)).items()}
    needed = sum(tensor.numel() for tensor in tensors.values()) * torch.float32.itemsize
    with new_folder(folder, needed) as beside:
        sizes = {name: tensor.shape for name, tensor in tensors.items()}
        write(beside / "adapter_model.safetensors", sizes, torch.float32, iter(tensors.items()))
        config: dict[str, Any] = {
            "peft_type": "LORA", "task_type": TASKS.get(shape.kind), "base_model_name_or_path": base,
            "inference_mode": True, "r": options.rank, "lora_alpha": options.alpha, "lora_dropout": 0.0, "bias": "none",
            "fan_in_fan_out": False, **_targets(shape, {name.split(".lora_")[0] for name in tensors}),
        }  # fmt: skip
        (beside / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _targets(shape: ModelShape, layers: set[str]) -> dict[str, list[str]]:
    """How PEFT finds the layers with adapters, by the ends of their names. Shared experts and the MLPs of the first
    layers are named by their weights: by their layers, PEFT would adapt the routed experts in their place."""
    by_weight = {layer for layer in layers if shape.experts and layer.endswith(ROUTED)}
    depth = 1 if shape.kind == "decoder" else 2  # the heads of encoders have a `dense`, too
    names = {_end(layer, depth) for layer in layers - by_weight}
    weights = {"target_parameters": sorted({_end(layer, 2) + ".weight" for layer in by_weight})} if by_weight else {}
    return {"target_modules": sorted(names), **weights}


def _end(layer: str, depth: int) -> str:
    return ".".join(layer.split(".")[-depth:])


def _peft(shape: ModelShape, name: str, tensor: Tensor) -> dict[str, Tensor]:
    """One adapter under PEFT's names; that of queries, keys and values is three there, T5's of keys and values two."""
    stem, kind = name.rsplit(".", 1)
    layer = huggingface_name(shape, stem + ".weight").removesuffix(".weight")
    letter = {DOWN: "A", UP: "B"}[kind]
    if stem.endswith(".cross.kv"):
        parts = {"k": tensor, "v": tensor} if kind == DOWN else _keys_and_values(shape, tensor)
    elif not stem.endswith("qkv"):
        parts = {"": tensor}
    elif "{part}" not in layer:
        what = f"{shape.family} keeps queries, keys and values in one layer, which PEFT adapts as one"
        raise UserError(what, fix=MERGE)
    else:
        three = tensor.chunk(3) if kind == DOWN else ungroup(shape, tensor)
        parts = dict(zip(part_names(shape), three, strict=True))
    return {f"base_model.model.{layer.replace('{part}', n)}.lora_{letter}.weight": part for n, part in parts.items()}


def _keys_and_values(shape: ModelShape, tensor: Tensor) -> dict[str, Tensor]:
    rows = tensor.view(shape.heads, 2, shape.width_per_head, -1)
    return {part: rows[:, n].reshape(-1, tensor.shape[1]) for n, part in enumerate("kv")}
