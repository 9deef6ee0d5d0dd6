"""Rotary positions (arXiv 2104.09864) with the long-context scaling of Llama 3.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainwright.train.models.shape import ModelShape


def rotary_cos_sin(shape: ModelShape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each [b, s, 1, head width / 2] in fp32, of the angles of every position."""
    angles = positions[..., None].float() * frequencies(shape).to(positions.device)
    return angles.cos()[:, :, None], angles.sin()[:, :, None]


def frequencies(shape: ModelShape) -> Tensor:
    width = shape.width_per_head
    plain = 1.0 / shape.rope_theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if shape.rope_scaling is None:
        return plain
    if len(shape.rope_scaling) == 1:  # linear
        return plain / shape.rope_scaling[0]
    return llama3_scaled(plain, *shape.rope_scaling)


def llama3_scaled(plain: Tensor, factor: float, low: float, high: float, context: float) -> Tensor:
    """Llama 3.1: low frequencies are divided by `factor`, high ones kept, those between interpolated."""
    periods = context * plain / (2 * math.pi)
    blend = ((periods - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * plain / factor + blend * plain


def apply_rotary(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [b, s, heads, d]; dimension i is paired with i + d/2, as in Hugging Face models."""
    cos, sin = cos_sin
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x.dtype)
