"""Which keys a rank's queries attend to when keys and values travel around a ring: one piece of work per owner of keys.

Every rank holds an early and a late chunk of a sequence, so a piece is one of three rectangles: causal over the rank's
own tokens, all queries over the owner's early chunk, or the late queries over all of the owner's keys. Documents are
contiguous, so two different chunks of a row share at most one, which the queries begin with and the keys end with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trainwright.train.models.block_mask import TokenLayout, block_mask

SKIP, WHOLE, MIXED = 0, 1, 2  # no visible pair; every pair (on the own tokens: every causal pair); some


@dataclass(frozen=True)
class Piece:
    """The queries and keys of one step, as slices of the rank's and of the owner's tokens."""

    queries: slice
    keys: slice
    causal: bool


@dataclass(frozen=True)
class RingMask:
    """What decides visibility on this rank. `work` lies in host memory, so that no step waits for the GPU."""

    rank: int
    ranks: int
    half: int  # tokens of a chunk
    work: Tensor  # int64 [ranks, 4] by owner: SKIP, WHOLE or MIXED; longest part: queries, keys; parts
    documents: Tensor | None = None  # [b, whole sequence]
    parts: Tensor | None = None  # int32 [ranks, 2, most parts + 1]: where queries and keys of each part begin
    window: int = 0
    cap: float = 0.0
    slopes: Tensor | None = None
    blocks: tuple[Any, ...] = ()  # by owner, FlexAttention's masks, where only that kernel knows the feature

    @property
    def special(self) -> bool:
        """Whether more than causality and documents decides the scores."""
        return bool(self.window or self.cap) or self.slopes is not None

    @cached_property
    def plan(self) -> list[list[int]]:
        return self.work.tolist()

    def layout(self, owner: int, device: torch.device) -> TokenLayout:
        """Positions and documents of a piece's queries and keys."""
        own = piece(self.rank, owner, self.half)
        queries = chunk_positions(self.rank, self.ranks, self.half, device)[own.queries]
        keys = chunk_positions(owner, self.ranks, self.half, device)[own.keys]
        documents = self.documents
        if documents is None:
            return TokenLayout(queries, keys, None, None)
        return TokenLayout(queries, keys, documents[:, keys], documents[:, queries])


def piece(rank: int, owner: int, half: int) -> Piece:
    everything = slice(0, 2 * half)
    if owner == rank:
        return Piece(everything, everything, True)
    if owner < rank:
        return Piece(everything, slice(0, half), False)
    return Piece(slice(half, 2 * half), everything, False)


def chunk_positions(rank: int, ranks: int, half: int, device: torch.device) -> Tensor:
    """Positions of a rank's tokens: chunk `rank` from the start and from the end of the sequence."""
    early = torch.arange(rank * half, (rank + 1) * half, device=device)
    return torch.cat([early, early + (2 * (ranks - rank) - 1) * half])


def ring_mask(
    window: int, cap: float, slopes: Tensor | None, sinks: bool, layout: TokenLayout, rank: int, ranks: int
) -> RingMask:
    """The mask of one micro-batch: the host reads once from the GPU, where documents are kept apart."""
    device, length = layout.queries.device, len(layout.keys)
    half = length // (2 * ranks)
    window = 0 if window >= length else window
    work, parts = document_parts(layout.documents, rank, ranks, half)
    mask = RingMask(rank, ranks, half, work, layout.documents, parts, window, cap, slopes)
    for owner in range(ranks):
        if window and nearest(mask, owner) >= window:
            work[owner, 0] = SKIP
        elif window and work[owner, 0] == WHOLE:
            work[owner, 0] = MIXED
    return with_blocks(mask, device) if device.type == "cuda" and (mask.special or sinks) else mask


def with_blocks(mask: RingMask, device: torch.device) -> RingMask:
    """The mask with FlexAttention's masks of each piece."""
    layouts = [None if mask.plan[owner][0] == SKIP else mask.layout(owner, device) for owner in range(mask.ranks)]
    return replace(mask, blocks=tuple(None if one is None else block_mask(mask.window, one) for one in layouts))


def nearest(mask: RingMask, owner: int) -> int:
    """The smallest distance from a key of the owner back from a query of this rank, among visible pairs."""
    late, ends = 2 * mask.ranks - 1, (owner, 2 * mask.ranks - 1 - owner)
    gaps = [query - key for query in (mask.rank, late - mask.rank) for key in ends if query >= key]
    return max(0, (min(gaps) - 1) * mask.half + 1) if min(gaps) else 0


def document_parts(documents: Tensor | None, rank: int, ranks: int, half: int) -> tuple[Tensor, Tensor | None]:
    """(`work`, `parts`) of a RingMask before windows. A part holds the tokens of one document; those of queries without
    keys, or the reverse, are parts of their own."""
    if documents is None:
        return torch.tensor([[WHOLE, 2 * half, 2 * half, 0]]).repeat(ranks, 1), None
    rows, device = documents.shape[0], documents.device
    places = [chunk_positions(owner, ranks, half, device) for owner in range(ranks)]
    parts = torch.zeros(ranks, 2, max(rows * 2 * half, 3 * rows) + 1, dtype=torch.int32, device=device)
    facts = torch.zeros(ranks, 4, dtype=torch.int64, device=device)
    for owner in range(ranks):
        if owner == rank:
            _own_parts(documents[:, places[owner]], parts[owner], facts[owner])
        else:
            span = piece(rank, owner, half)
            queries, keys = documents[:, places[rank][span.queries]], documents[:, places[owner][span.keys]]
            _shared_parts(queries, keys, parts[owner], facts[owner])
    return facts.cpu(), parts


def _own_parts(own: Tensor, parts: Tensor, facts: Tensor) -> None:
    """Every document of every row is a part; queries are keys."""
    rows, length = own.shape
    begins = torch.ones_like(own, dtype=torch.bool)
    begins[:, 1:] = own[:, 1:] != own[:, :-1]
    number = begins.flatten().cumsum(0)
    starts = torch.arange(rows * length, device=own.device, dtype=torch.int32)
    parts.fill_(rows * length)
    target = torch.where(begins.flatten(), number - 1, parts.shape[1] - 1)
    for side in parts:
        side.scatter_(0, target, starts)
        side[-1] = rows * length
    longest = parts[0].diff().max()
    mixed = number[-1] > rows
    facts.copy_(torch.stack([torch.where(mixed, MIXED, WHOLE), longest, longest, number[-1]]))


def _shared_parts(queries: Tensor, keys: Tensor, parts: Tensor, facts: Tensor) -> None:
    """Three parts per row: keys of other documents, the shared document, queries of other documents."""
    shared = [(side == common).sum(1) for side, common in ((queries, keys[:, -1:]), (keys, queries[:, :1]))]
    visible = (queries[:, 0] == keys[:, -1]).long()
    asking, seen = (count * visible for count in shared)
    rows, nothing = len(asking), torch.zeros_like(asking)
    lengths = (
        torch.stack([nothing, asking, queries.shape[1] - asking], 1),
        torch.stack([keys.shape[1] - seen, seen, nothing], 1),
    )
    for side, counts in zip(parts, lengths, strict=True):
        side[1 : 3 * rows + 1] = counts.flatten().cumsum(0)
        side[3 * rows + 1 :] = counts.sum()
    whole = (asking.sum() == queries.numel()) & (seen.sum() == keys.numel())
    kind = torch.where(whole, WHOLE, torch.where(visible.any(), MIXED, SKIP))
    longest = [counts.max() for counts in lengths]  # kernels leave what is beyond it unwritten, so of all parts
    facts.copy_(torch.stack([kind, *longest, torch.full_like(kind, 3 * rows)]))
