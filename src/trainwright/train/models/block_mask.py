"""FlexAttention's block mask for causal attention with documents and windows: blocks without a visible pair are
skipped, and blocks in which every pair is visible are not masked. Both follow from the smallest and largest position
and document of a block. Torch's own `create_block_mask` tests every pair and has to be compiled for that, which took
most of a minute before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

BLOCK = 128


@dataclass(frozen=True)
class TokenLayout:
    """Positions of a rank's queries and keys in the whole sequence; without context parallelism `arange` for both."""

    queries: Tensor  # [queries]
    keys: Tensor  # [keys]
    documents: Tensor | None  # [b, keys], in the order of `keys`
    query_documents: Tensor | None  # [b, queries]
    chunks: tuple[tuple[int, int, int], ...] = ()  # (first query, end query, visible keys) of each contiguous part
    mixed_rows: int | None = None  # only the first so many rows hold several documents; None: not known
    ring: tuple[int, int] | None = None  # (rank, ranks) where keys travel around a ring

    def first_rows(self, count: int) -> TokenLayout:
        """The layout of the first rows of the micro-batch."""
        documents, query_documents = (d if d is None else d[:count] for d in (self.documents, self.query_documents))
        return replace(self, documents=documents, query_documents=query_documents, mixed_rows=None)


def block_mask(window: int, layout: TokenLayout) -> Any:
    """FlexAttention's BlockMask of the visible pairs."""
    from torch.nn.attention.flex_attention import BlockMask

    some, every = block_visibility(window, layout)
    return BlockMask.from_kv_blocks(
        *_block_lists(some & ~every),
        *_block_lists(every),
        BLOCK_SIZE=BLOCK,
        mask_mod=_mask_mod(window, layout),
        seq_lengths=(len(layout.queries), len(layout.keys)),
    )


def block_visibility(window: int, layout: TokenLayout) -> tuple[Tensor, Tensor]:
    """[rows, 1, query blocks, key blocks]: whether some pair of a block may be visible, and whether all pairs are."""
    first_query, last_query = _block_ranges(layout.queries)
    first_key, last_key = _block_ranges(layout.keys)
    farthest = last_query[:, None] - first_key[None, :]
    nearest = first_query[:, None] - last_key[None, :]
    some, every = (farthest >= 0)[None, None], (nearest >= 0)[None, None]
    if window:
        some, every = some & (nearest < window), every & (farthest < window)
    if layout.documents is not None and layout.query_documents is not None:
        low, high = (end[:, None, :, None] for end in _block_ranges(layout.query_documents))
        key_low, key_high = (end[:, None, None, :] for end in _block_ranges(layout.documents))
        some = some & (low <= key_high) & (key_low <= high)
        every = every & (low == key_high) & (key_low == high)
    complete = _complete_blocks(layout.queries)[:, None] & _complete_blocks(layout.keys)[None, :]
    return some, every & complete


def _mask_mod(window: int, layout: TokenLayout) -> Callable[..., Tensor]:
    """Whether one pair is visible; FlexAttention evaluates it in blocks that are visible in part."""
    queries, keys = layout.queries, layout.keys
    key_documents, query_documents = layout.documents, layout.query_documents

    def visible(b: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        distance = queries[q] - keys[k]
        ok = distance >= 0
        if window:
            ok = ok & (distance < window)
        if key_documents is not None and query_documents is not None:
            ok = ok & (query_documents[b, q] == key_documents[b, k])
        return ok

    return visible


def _block_ranges(values: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of each block along the last dimension."""
    missing = -values.shape[-1] % BLOCK
    if missing:
        values = torch.cat([values, values[..., -1:].expand(*values.shape[:-1], missing)], dim=-1)
    return torch.aminmax(values.view(*values.shape[:-1], -1, BLOCK), dim=-1)


def _complete_blocks(values: Tensor) -> Tensor:
    """Which blocks are filled to their end."""
    blocks = -(-len(values) // BLOCK)
    return torch.arange(1, blocks + 1, device=values.device) * BLOCK <= len(values)


def _block_lists(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many key blocks each query block has, and their indices, the ones it has first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), order.int().contiguous()
