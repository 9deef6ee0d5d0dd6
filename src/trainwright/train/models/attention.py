"""Which keys a query may attend to, and the kernel that computes it: SDPA for plain causal attention; for documents,
sliding windows and ALiBi a dense mask on a CPU and FlexAttention on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.train.models.block_mask import TokenLayout, block_mask
from trainwright.train.models.ring_mask import RingMask, ring_mask
from trainwright.train.models.shape import ModelShape


@dataclass(frozen=True)
class AttentionMask:
    """What the queries of one micro-batch attend to. All `None`: plain causal attention over the whole row."""

    dense: Tensor | None = None  # boolean, or additive with ALiBi; broadcasts to [b, heads, queries, keys]
    blocks: Any = None  # FlexAttention's BlockMask
    slopes: Tensor | None = None  # ALiBi slopes for FlexAttention
    positions: tuple[Tensor, Tensor] | None = None  # of each query and each key in the sequence, for ALiBi
    chunks: tuple[tuple[int, int, int], ...] = ()  # context parallelism: (first query, end query, visible keys)
    full: bool = False  # where there is no mask: attention in both directions instead of causal
    rows: int | None = None  # `blocks` is for the first so many rows, and the others are causal; None: for all rows
    cap: float = 0.0  # scores as cap * tanh(score / cap); 0: as they are
    ring: RingMask | None = None  # context parallelism by ring: one piece of work per owner of keys
    windowless: AttentionMask | None = None  # what layers without the window attend to, where only some have it

    @property
    def is_causal(self) -> bool:
        return self.dense is None and self.blocks is None and not self.chunks and not self.cap


CAUSAL = AttentionMask()
FULL = AttentionMask(full=True)
ROW_STEPS = 4  # in how many steps the number of rows with several documents is rounded up


def attention_mask(shape: ModelShape, layout: TokenLayout, whole: bool, heads: slice) -> AttentionMask:
    """The cheapest mask that is exact for this shape, these documents and this slice of the heads. `whole`: this rank
    holds the whole sequence."""
    if shape.full_every:
        window, full = (
            attention_mask(replace(shape, full_every=0, window=size), layout, whole, heads)
            for size in (shape.window, 0)
        )
        return replace(window, windowless=full)
    device = layout.queries.device
    slopes = alibi_slopes(shape.heads)[heads].to(device) if shape.position == "alibi" else None
    if layout.ring is not None:
        return AttentionMask(ring=ring_mask(shape.window, shape.score_cap, slopes, shape.sinks, layout, *layout.ring))
    bent = slopes is not None or bool(shape.score_cap) or shape.sinks
    special = layout.documents is not None or bool(shape.window) or bent
    if whole and not special:
        return CAUSAL
    if device.type == "cuda":
        if not special:
            return AttentionMask(chunks=layout.chunks)
        if whole and not shape.window and not bent:
            return document_mask(layout)
        positions = (layout.queries, layout.keys)
        blocks = block_mask(shape.window, layout)
        return AttentionMask(blocks=blocks, slopes=slopes, positions=positions, cap=shape.score_cap)
    return AttentionMask(dense=dense_mask(shape, layout, slopes), cap=shape.score_cap)


def document_mask(layout: TokenLayout) -> AttentionMask:
    """Documents on a GPU. cuDNN's causal kernel is faster for a row with one document, FlexAttention for one with
    several, as it skips other documents. Each number of rows is compiled by itself, so it is rounded up."""
    assert layout.documents is not None
    batch = layout.documents.shape[0]
    mixed = batch if layout.mixed_rows is None else layout.mixed_rows
    rows = math.ceil(math.ceil(mixed * ROW_STEPS / batch) * batch / ROW_STEPS)
    if rows == 0:
        return CAUSAL
    return AttentionMask(blocks=block_mask(0, layout.first_rows(rows)), rows=None if rows == batch else rows)


def dense_mask(shape: ModelShape, layout: TokenLayout, slopes: Tensor | None) -> Tensor:
    distance = layout.queries[:, None] - layout.keys[None, :]
    visible = distance >= 0
    if shape.window:
        visible &= distance < shape.window
    visible = visible[None, None]
    if layout.documents is not None and layout.query_documents is not None:
        visible = visible & (layout.query_documents[:, None, :, None] == layout.documents[:, None, None, :])
    if slopes is None:
        return visible
    bias = -slopes[:, None, None] * distance
    return torch.where(visible, bias, -torch.inf)


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, sinks: Tensor | None = None) -> Tensor:
    """Attention of q [b, heads, queries, d] over k, v [b, kv_heads, keys, d]. `sinks` [heads] are scores without a
    token: they take their share of the softmax and add nothing."""
    grouped = q.shape[1] != k.shape[1]
    if sinks is not None:
        return _attend_sinks(q, k, v, mask, sinks, grouped)
    if mask.is_causal:
        return F.scaled_dot_product_attention(q, k, v, is_causal=not mask.full, enable_gqa=grouped)
    if mask.chunks:
        return _attend_chunks(q, k, v, mask.chunks, grouped)
    if mask.rows is not None:
        return _attend_rows(q, k, v, mask, mask.rows, grouped)
    if mask.blocks is not None:
        return _attend_flex(q, k, v, mask, grouped)
    assert mask.dense is not None
    dense = mask.dense if mask.dense.dtype == torch.bool else mask.dense.to(q.dtype)
    if mask.cap:
        return _attend_capped(q, k, v, dense, mask.cap)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=dense, enable_gqa=grouped)


def _attend_capped(q: Tensor, k: Tensor, v: Tensor, dense: Tensor, cap: float) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q.float() @ k.float().transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = (cap * torch.tanh(scores / cap)).masked_fill(~dense, -torch.inf)
    return scores.softmax(dim=-1).to(v.dtype) @ v


def _attend_sinks(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, sinks: Tensor, grouped: bool) -> Tensor:
    if mask.blocks is not None:
        attended, log_sum = _compiled_flex()(q, k, v, block_mask=mask.blocks, enable_gqa=grouped, return_lse=True)
        share = torch.sigmoid(log_sum - sinks.float()[:, None])  # of the tokens in exp(log_sum) + exp(sink)
        return (attended * share[..., None]).to(v.dtype)
    assert mask.dense is not None
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = (q.float() @ k.float().transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask.dense, -torch.inf)
    column = sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1].to(v.dtype) @ v


def _attend_chunks(q: Tensor, k: Tensor, v: Tensor, chunks: tuple[tuple[int, int, int], ...], grouped: bool) -> Tensor:
    """Each chunk of queries sees all keys up to its own end: causal, aligned to the lower right corner."""
    from torch.nn.attention.bias import causal_lower_right

    parts = []
    for start, stop, visible in chunks:
        bias = causal_lower_right(stop - start, visible)
        part = q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible]
        parts.append(F.scaled_dot_product_attention(*part, attn_mask=bias, enable_gqa=grouped))
    return torch.cat(parts, dim=2)


def _attend_rows(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, rows: int, grouped: bool) -> Tensor:
    """The first rows by their block mask, the others causally."""
    first = _attend_flex(q[:rows], k[:rows], v[:rows], mask, grouped)
    rest = q[rows:], k[rows:], v[rows:]
    others = F.scaled_dot_product_attention(*rest, is_causal=not mask.full, enable_gqa=grouped)
    return torch.cat([first, others])


def _attend_flex(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, grouped: bool) -> Tensor:
    slopes, cap = mask.slopes, mask.cap
    if cap:

        def softcap(score: Tensor, _b: Tensor, _head: Tensor, _query: Tensor, _key: Tensor) -> Tensor:
            return cap * torch.tanh(score / cap)

        return _compiled_flex()(q, k, v, score_mod=softcap, block_mask=mask.blocks, enable_gqa=grouped)
    if slopes is None:
        return _compiled_flex()(q, k, v, block_mask=mask.blocks, enable_gqa=grouped)
    assert mask.positions is not None
    queries, keys = mask.positions

    def alibi(score: Tensor, _b: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + slopes[head] * (keys[key] - queries[query])

    return _compiled_flex()(q, k, v, score_mod=alibi, block_mask=mask.blocks, enable_gqa=grouped)


@lru_cache(maxsize=8)
def alibi_slopes(heads: int) -> Tensor:
    """Slopes of ALiBi (arXiv 2108.12409); head counts that are not powers of two interleave as MPT does."""
    power = 2 ** math.ceil(math.log2(heads))
    slopes = 2.0 ** (-8.0 * torch.arange(1, power + 1, dtype=torch.float32) / power)
    if power != heads:
        slopes = torch.cat([slopes[1::2], slopes[::2]])[:heads]
    return slopes
