"""Rotary positions (arXiv 2104.09864) with the long-context scaling of Llama 3.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainwright.train.models.shape import ModelShape


def rotation(shape: ModelShape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each [b, s, 1, head width / 2] in fp32, of every position's angles."""
    angles = positions[..., None].float() * frequencies(shape).to(positions.device)
    return angles.cos()[:, :, None], angles.sin()[:, :, None]


def frequencies(shape: ModelShape) -> Tensor:
    width = shape.width_per_head
    plain = 1.0 / shape.rope_theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    return plain if shape.rope_scaling is None else scaled(plain, *shape.rope_scaling)


def scaled(plain: Tensor, factor: float, low: float, high: float, context: int) -> Tensor:
    """Llama 3.1: slow waves are stretched by `factor`, fast ones kept, those between blended smoothly."""
    turns = context * plain / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * plain / factor + blend * plain


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn x [b, s, heads, d]: dimension i is paired with i + d/2, as Hugging Face lays them out."""
    cos, sin = turn
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x.dtype)
