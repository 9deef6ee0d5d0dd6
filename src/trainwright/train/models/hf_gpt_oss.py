"""How Hugging Face keeps the experts of GPT-OSS: all experts in one tensor, transposed, gate and up interleaved."""

from __future__ import annotations

from torch import Tensor

from trainwright.train.models.shape import ModelShape

PREFIX = "model.layers.{}.mlp."
NAMES = {
    "mlp.router.linear_bias": PREFIX + "router.bias",
    "mlp.experts.gate_up": PREFIX + "experts.gate_up_proj",
    "mlp.experts.gate_up_bias": PREFIX + "experts.gate_up_proj_bias",
    "mlp.experts.down": PREFIX + "experts.down_proj",
    "mlp.experts.down_bias": PREFIX + "experts.down_proj_bias",
}


def theirs_of(shape: ModelShape, name: str) -> str | None:
    """Hugging Face's name of a parameter that this file converts."""
    if shape.family != "gpt_oss" or not name.startswith("blocks."):
        return None
    _, layer, rest = name.split(".", 2)
    return NAMES[rest].replace("{}", layer) if rest in NAMES else None


def to_theirs(name: str, tensor: Tensor) -> Tensor:
    if name.endswith("gate_up"):  # [experts, 2, ffn, hidden] to [experts, hidden, ffn x 2]
        return tensor.permute(0, 3, 2, 1).flatten(2)
    if name.endswith("gate_up_bias"):
        return tensor.transpose(1, 2).flatten(1)
    return tensor.transpose(1, 2) if name.endswith("down") else tensor


def to_ours(shape: ModelShape, name: str, tensor: Tensor) -> Tensor:
    if name.endswith("gate_up"):
        return tensor.view(shape.experts, shape.hidden, shape.ffn, 2).permute(0, 3, 2, 1)
    if name.endswith("gate_up_bias"):
        return tensor.view(shape.experts, shape.ffn, 2).transpose(1, 2)
    return tensor.transpose(1, 2) if name.endswith("down") else tensor
