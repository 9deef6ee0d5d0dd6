"""Context parallelism: each rank holds two chunks of every sequence, an early and a late one so that causal work is
balanced. For attention it gathers the keys and values of its peers; or all exchange queries, keys and values so that
each attends over whole sequences for a part of the heads; or keys and values travel around a ring. All are exact for
any mask, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.train.data.batch import Batch
from trainwright.train.models.attention import AttentionMask, attend
from trainwright.train.models.block_mask import TokenLayout
from trainwright.train.models.decoder import Decoder
from trainwright.train.parallel.collectives import exchange, gather
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.ring import attend_ring


def own_tokens(length: int, layout: Layout, device: torch.device) -> Tensor:
    """Positions of this rank's tokens: chunk r from the start and chunk r from the end of the sequence."""
    ranks, rank = layout.plan.cp, layout.context_rank
    chunks = torch.arange(length, device=device).chunk(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])


def local_tokens(batch: Batch, layout: Layout) -> Batch:
    """This rank's tokens of a micro-batch."""
    if layout.plan.cp == 1:
        return batch
    own = own_tokens(batch.tokens.shape[1], layout, batch.tokens.device)
    return Batch(batch.tokens[:, own], batch.targets[:, own], batch.positions[:, own])


def token_layout(batch: Batch, layout: Layout) -> TokenLayout:
    """Positions and documents of this rank's queries and keys."""
    length, device = batch.tokens.shape[1], batch.tokens.device
    everything = torch.arange(length, device=device)
    if layout.whole_rows:
        documents = batch.documents
        return TokenLayout(everything, everything, documents, documents, mixed_rows=batch.mixed_rows)
    own = own_tokens(length, layout, device)
    documents = None if batch.mixed_rows == 0 else batch.documents
    half, rank, ranks = length // (2 * layout.plan.cp), layout.context_rank, layout.plan.cp
    chunks = ((0, half, (rank + 1) * half), (half, 2 * half, (2 * ranks - rank) * half))
    query_documents = None if documents is None else documents[:, own]
    ring = (rank, ranks) if layout.context == "ring" else None
    return TokenLayout(own, everything, documents, query_documents, chunks, ring=ring)


def apply_context(model: Decoder, layout: Layout) -> None:
    kernel: Callable[..., Tensor]
    if layout.context == "ring":
        kernel = partial(attend_ring, group=layout.context_group.group_name)
    else:
        each = attend_exchanged if layout.exchanges else attend_gathered
        kernel = partial(each, ranks=layout.plan.cp, group=layout.context_group)
    for block in model.layers():
        block.attention.kernel = kernel


def attend_gathered(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, sinks: Tensor | None = None, *, ranks: int, group: Any
) -> Tensor:
    """Attention of this rank's queries over the keys and values of all, restored to sequence order."""
    ordered = in_sequence(gather(torch.cat([k, v], dim=3), 2, group), ranks)
    width = k.shape[3]  # under latent attention, values have another one
    return attend(q, ordered[..., :width], ordered[..., width:], mask, sinks)


def attend_exchanged(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, sinks: Tensor | None = None, *, ranks: int, group: Any
) -> Tensor:
    """Attention over whole sequences for this rank's part of the heads (arXiv 2309.14509)."""
    q, k, v = (in_sequence(_to_heads(x, ranks, group), ranks) for x in (q, k, v))
    own = None if sinks is None else sinks.chunk(ranks)[dist.get_rank(group)]
    pieces = attend(q, k, v, mask, own).chunk(2 * ranks, dim=2)
    early, late = pieces[:ranks], pieces[: ranks - 1 : -1]
    return _to_tokens(torch.cat([part for pair in zip(early, late, strict=True) for part in pair], 2), ranks, group)


def in_sequence(x: Tensor, ranks: int) -> Tensor:
    """Tokens [b, heads, s, d] in the order of the ranks, put into the order of the sequence."""
    pieces = x.chunk(2 * ranks, dim=2)
    return torch.cat([*pieces[0::2], *reversed(pieces[1::2])], dim=2)


def _to_heads(x: Tensor, ranks: int, group: Any) -> Tensor:
    """All heads of this rank's tokens, to this rank's heads of all tokens."""
    parts = x.view(x.shape[0], ranks, -1, *x.shape[2:]).transpose(0, 1)
    return exchange(parts, [1] * ranks, [1] * ranks, group).permute(1, 2, 0, 3, 4).flatten(2, 3)


def _to_tokens(x: Tensor, ranks: int, group: Any) -> Tensor:
    parts = x.view(*x.shape[:2], ranks, -1, x.shape[3]).permute(2, 0, 1, 3, 4)
    return exchange(parts, [1] * ranks, [1] * ranks, group).transpose(0, 1).flatten(1, 2)
