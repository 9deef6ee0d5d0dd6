"""Rotary positions (arXiv 2104.09864), on all of a head or on its first part, with linear scaling and that of Llama
3.1."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from trainwright.train.models.shape import ModelShape

# Cosine and sine; where layers with a window have another base, those of these layers follow.
Angles = tuple[Tensor, ...]


def rotary_cos_sin(shape: ModelShape, positions: Tensor) -> Angles:
    """Cosine and sine, each [b, s, 1, rotary width / 2] in fp32, of the angles of every position."""
    shapes = [shape]
    if shape.window_theta:
        shapes.append(replace(shape, rope_theta=shape.window_theta, rope_scaling=None))
    every = [positions[..., None].float() * frequencies(s).to(positions.device) for s in shapes]
    return tuple(part[:, :, None] for angles in every for part in (angles.cos(), angles.sin()))


def frequencies(shape: ModelShape) -> Tensor:
    width = shape.rope_dim or shape.width_per_head
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


def apply_rotary(x: Tensor, cos_sin: Angles, pairs: bool = False) -> Tensor:
    """Rotate the first dimensions of x [b, s, heads, d], as many as there are angles for. Dimension i is paired with
    i + d/2, as in most Hugging Face models, or with `pairs` 2i with 2i + 1 (their order then changes, for queries and
    keys alike)."""
    cos, sin = cos_sin
    width = 2 * cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat([apply_rotary(x[..., :width], cos_sin, pairs), x[..., width:]], dim=-1)
    wide = x.float()
    left, right = (wide[..., 0::2], wide[..., 1::2]) if pairs else wide.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x.dtype)
