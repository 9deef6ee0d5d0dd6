"""Which keys a query may see, and the kernel that computes it: SDPA for the plain causal case, and for documents,
windows and ALiBi a dense mask on CPU and FlexAttention on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.train.models.blocks import Span, block_mask
from trainwright.train.models.shape import ModelShape


@dataclass(frozen=True)
class Sight:
    """What the queries of one micro-batch see. All `None`: plain causal attention over the whole row."""

    mask: Tensor | None = None  # boolean, or additive where ALiBi is in it; broadcasts to [b, heads, queries, keys]
    blocks: Any = None  # FlexAttention's BlockMask
    slopes: Tensor | None = None  # ALiBi slopes for FlexAttention
    order: tuple[Tensor, Tensor] | None = None  # index of each query and each key in the sequence, for ALiBi
    tails: tuple[tuple[int, int, int], ...] = ()  # context parallel: (first query, end query, keys in view)

    @property
    def plain(self) -> bool:
        return self.mask is None and self.blocks is None and not self.tails


CAUSAL = Sight()


def look(shape: ModelShape, span: Span, whole: bool, heads: slice) -> Sight:
    """The cheapest `Sight` that is exact for this shape, these documents and this slice of the heads."""
    device = span.queries.device
    slopes = alibi_slopes(shape.heads)[heads].to(device) if shape.position == "alibi" else None
    special = span.documents is not None or bool(shape.window) or slopes is not None
    if whole and not special:
        return CAUSAL
    if device.type == "cuda":
        if not special:
            return Sight(tails=span.chunks)
        return Sight(blocks=block_mask(shape.window, span), slopes=slopes, order=(span.queries, span.keys))
    return Sight(mask=dense_mask(shape, span, slopes))


def dense_mask(shape: ModelShape, span: Span, slopes: Tensor | None) -> Tensor:
    distance = span.queries[:, None] - span.keys[None, :]
    seen = distance >= 0
    if shape.window:
        seen &= distance < shape.window
    seen = seen[None, None]
    if span.documents is not None and span.query_documents is not None:
        seen = seen & (span.query_documents[:, None, :, None] == span.documents[:, None, None, :])
    if slopes is None:
        return seen
    bias = -slopes[:, None, None] * distance
    return torch.where(seen, bias, -torch.inf)


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def attend(q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
    """Attention of q [b, heads, queries, d] over k, v [b, kv_heads, keys, d]."""
    grouped = q.shape[1] != k.shape[1]
    if sight.plain:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    if sight.tails:
        return _attend_tails(q, k, v, sight.tails, grouped)
    if sight.blocks is not None:
        return _attend_flex(q, k, v, sight, grouped)
    assert sight.mask is not None
    mask = sight.mask if sight.mask.dtype == torch.bool else sight.mask.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


def _attend_tails(q: Tensor, k: Tensor, v: Tensor, tails: tuple[tuple[int, int, int], ...], grouped: bool) -> Tensor:
    """Each run of queries sees all keys up to its own end: causal, aligned to the lower right corner."""
    from torch.nn.attention.bias import causal_lower_right

    parts = []
    for start, stop, seen in tails:
        bias = causal_lower_right(stop - start, seen)
        part = q[:, :, start:stop], k[:, :, :seen], v[:, :, :seen]
        parts.append(F.scaled_dot_product_attention(*part, attn_mask=bias, enable_gqa=grouped))
    return torch.cat(parts, dim=2)


def _attend_flex(q: Tensor, k: Tensor, v: Tensor, sight: Sight, grouped: bool) -> Tensor:
    slopes = sight.slopes
    if slopes is None:
        return _compiled_flex()(q, k, v, block_mask=sight.blocks, enable_gqa=grouped)
    assert sight.order is not None
    queries, keys = sight.order

    def nearer(score: Tensor, _b: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + slopes[head] * (keys[key] - queries[query])

    return _compiled_flex()(q, k, v, score_mod=nearer, block_mask=sight.blocks, enable_gqa=grouped)


@lru_cache(maxsize=8)
def alibi_slopes(heads: int) -> Tensor:
    """Slopes of ALiBi (arXiv 2108.12409), for head counts that are not powers of two as MPT interleaves them."""
    whole = 2 ** math.ceil(math.log2(heads))
    slopes = 2.0 ** (-8.0 * torch.arange(1, whole + 1, dtype=torch.float32) / whole)
    if whole != heads:
        slopes = torch.cat([slopes[1::2], slopes[::2]])[:heads]
    return slopes
