"""Rotary positions (arXiv 2104.09864), on all of a head or on its first part, with the scalings for long contexts:
linear, Llama 3.1's and YaRN."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from trainwright.train.models.shape import ModelShape

YARN = 6  # numbers of YaRN's scaling: factor, fast, slow, original context, mscale, mscale_all_dim; 7: not rounded
# Cosine and sine; where layers with a window have another base, those of these layers follow.
Angles = tuple[Tensor, ...]


def rotary_cos_sin(shape: ModelShape, positions: Tensor) -> Angles:
    """Cosine and sine, each [b, s, 1, rotary width / 2] in fp32, of the angles of every position."""
    shapes = [shape]
    if shape.window_theta:
        shapes.append(replace(shape, rope_theta=shape.window_theta, rope_scaling=None))
    size = yarn_magnitudes(shape)[0]
    every = [positions[..., None].float() * frequencies_on(s, positions.device) for s in shapes]
    return tuple(part[:, :, None] * size for angles in every for part in (angles.cos(), angles.sin()))


def frequencies_on(shape: ModelShape, device: torch.device) -> Tensor:
    # A copy from plain host memory waits for all work of the GPU: it is made once, not in every step.
    return _kept_frequencies(shape, device) if device.type == "cuda" else frequencies(shape).to(device)


@lru_cache(maxsize=16)
def _kept_frequencies(shape: ModelShape, device: torch.device) -> Tensor:
    return frequencies(shape).to(device)


def frequencies(shape: ModelShape) -> Tensor:
    width = shape.rope_dim or shape.width_per_head
    plain = 1.0 / shape.rope_theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if shape.rope_scaling is None:
        return plain
    if len(shape.rope_scaling) == 1:  # linear
        return plain / shape.rope_scaling[0]
    if len(shape.rope_scaling) >= YARN:
        factor, fast, slow, context = shape.rope_scaling[:4]
        rounded = len(shape.rope_scaling) == YARN
        return yarn_scaled(plain, width, shape.rope_theta, factor, fast, slow, context, rounded)
    return llama3_scaled(plain, *shape.rope_scaling)


def yarn_scaled(
    plain: Tensor, width: int, theta: float, factor: float, fast: float, slow: float, context: float, rounded: bool
) -> Tensor:
    """YaRN (arXiv 2309.00071): dimensions that turn fewer than `slow` times in the original context are divided by
    `factor`, those that turn more than `fast` times are kept, those between are interpolated. `rounded`: to whole
    dimensions."""

    def dimension(turns: float) -> float:
        return width * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(fast), dimension(slow)
    if rounded:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(width // 2).float() - low) / (high - low or 0.001)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp)


def yarn_magnitudes(shape: ModelShape) -> tuple[float, float]:
    """Under YaRN: what cosine and sine, and what all scores are multiplied by (DeepSeek)."""
    if shape.rope_scaling is None or len(shape.rope_scaling) < YARN or shape.rope_scaling[0] <= 1:
        return 1.0, 1.0
    factor, part, whole = shape.rope_scaling[0], *shape.rope_scaling[4:YARN]
    size, all_scores = (0.1 * scale * math.log(factor) + 1.0 for scale in (part, whole))
    return size / all_scores, all_scores * all_scores


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
