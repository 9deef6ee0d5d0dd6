"""Causal attention with documents and windows for FlexAttention, in blocks: those that nobody sees are skipped, those
that everybody sees are not masked. The ends of a block's ranges tell which is which; torch's own `create_block_mask`
looks at every pair and has to be compiled for that, which took most of a minute before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BLOCK = 128


@dataclass(frozen=True)
class Span:
    """Where a rank's queries and keys lie in the whole sequence; one rank alone has `arange` for both."""

    queries: Tensor  # [queries]
    keys: Tensor  # [keys]
    documents: Tensor | None  # [b, keys], in the order of `keys`
    query_documents: Tensor | None  # [b, queries]
    chunks: tuple[tuple[int, int, int], ...] = ()


def block_mask(window: int, span: Span) -> Any:
    """FlexAttention's BlockMask of the pairs that see each other."""
    from torch.nn.attention.flex_attention import BlockMask

    some, every = reach(window, span)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every),
        *_listed(every),
        BLOCK_SIZE=BLOCK,
        mask_mod=_pairs(window, span),
        seq_lengths=(len(span.queries), len(span.keys)),
    )


def reach(window: int, span: Span) -> tuple[Tensor, Tensor]:
    """[rows, 1, blocks of queries, blocks of keys]: may some pair see each other, and do all of them for sure?"""
    first_query, last_query = _ends(span.queries)
    first_key, last_key = _ends(span.keys)
    farthest = last_query[:, None] - first_key[None, :]
    nearest = first_query[:, None] - last_key[None, :]
    some, every = (farthest >= 0)[None, None], (nearest >= 0)[None, None]
    if window:
        some, every = some & (nearest < window), every & (farthest < window)
    if span.documents is not None and span.query_documents is not None:
        low, high = (end[:, None, :, None] for end in _ends(span.query_documents))
        key_low, key_high = (end[:, None, None, :] for end in _ends(span.documents))
        some = some & (low <= key_high) & (key_low <= high)
        every = every & (low == key_high) & (key_low == high)
    whole = _whole(span.queries)[:, None] & _whole(span.keys)[None, :]
    return some, every & whole


def _pairs(window: int, span: Span) -> Callable[..., Tensor]:
    """May this query see this key? Asked where a block is seen in part."""
    queries, keys = span.queries, span.keys
    key_documents, query_documents = span.documents, span.query_documents

    def seen(b: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        distance = queries[q] - keys[k]
        ok = distance >= 0
        if window:
            ok = ok & (distance < window)
        if key_documents is not None and query_documents is not None:
            ok = ok & (query_documents[b, q] == key_documents[b, k])
        return ok

    return seen


def _ends(values: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of each block along the last dimension."""
    missing = -values.shape[-1] % BLOCK
    if missing:
        values = torch.cat([values, values[..., -1:].expand(*values.shape[:-1], missing)], dim=-1)
    return torch.aminmax(values.view(*values.shape[:-1], -1, BLOCK), dim=-1)


def _whole(values: Tensor) -> Tensor:
    """Which blocks are filled to their end."""
    blocks = -(-len(values) // BLOCK)
    return torch.arange(1, blocks + 1, device=values.device) * BLOCK <= len(values)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and their numbers, first come the ones it has."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), order.int().contiguous()
