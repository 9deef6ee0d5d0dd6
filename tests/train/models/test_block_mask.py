"""The block mask of FlexAttention: the very tensors that torch's own builder gives, and under context parallelism never
a pair too few or too many."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from trainwright.train.models.attention import attend, dense_mask, document_mask
from trainwright.train.models.block_mask import BLOCK, TokenLayout, block_mask, block_visibility
from trainwright.train.models.shape import lookup

SHAPE = lookup("llama3.1-8b-debug")
TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "full_q_num_blocks")


def packed(rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """Documents of random lengths, one after the other, as the loader packs them."""
    begins = torch.rand(rows, length, generator=generator) < 1 / 400
    return begins.cumsum(dim=1)


def token_layout(length: int, documents: bool, ranks: int = 1, rank: int = 0) -> TokenLayout:
    generator = torch.Generator().manual_seed(length)
    docs = packed(2, length, generator) if documents else None
    index = torch.arange(length)
    pieces = index.chunk(2 * ranks)
    queries = torch.cat([pieces[rank], pieces[-1 - rank]])
    return TokenLayout(queries, index, docs, None if docs is None else docs[:, queries])


def blocks_of(seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """From every pair: which blocks hold a pair that is seen, and which hold nothing else."""
    tall, wide = (-size % BLOCK for size in seen.shape[-2:])
    tiles = torch.nn.functional.pad(seen, (0, wide, 0, tall)).unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    return tiles.any(dim=-1).any(dim=-2), tiles.all(dim=-1).all(dim=-2)


@pytest.mark.parametrize(("documents", "window"), [(True, 0), (False, 300), (True, 300)])
@pytest.mark.parametrize("length", [128, 1000, 1024])
def test_the_mask_is_torchs_own(length, documents, window):
    layout = token_layout(length, documents)
    ours = block_mask(window, layout)
    judge = create_block_mask(ours.mask_mod, 2 if documents else None, None, length, length, device="cpu")
    assert ours.seq_lengths == judge.seq_lengths
    for name in TENSORS:
        got, right = getattr(ours, name), getattr(judge, name)
        assert (got.dtype, got.is_contiguous()) == (right.dtype, right.is_contiguous())
        assert torch.equal(got, right), name


@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_context_parallel_rank_misses_nothing_and_leaves_nothing_unmasked(rank, documents, window):
    layout = token_layout(3000, documents, ranks=2, rank=rank)
    some, every = block_visibility(window, layout)
    any_seen, all_seen = blocks_of(dense_mask(replace(SHAPE, window=window), layout, None))
    assert not (any_seen & ~some).any()
    assert torch.equal(every, all_seen)


def test_attention_with_the_mask_is_attention_with_the_dense_one():
    layout = token_layout(512, documents=True)
    q, k, v = (torch.randn(2, heads, 512, 16) for heads in (4, 2, 2))
    with torch.no_grad():
        got = torch.compile(flex_attention)(q, k, v, block_mask=block_mask(0, layout), enable_gqa=True)
    right = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=dense_mask(SHAPE, layout, None), enable_gqa=True
    )
    assert torch.allclose(got, right, atol=1e-5)


@pytest.mark.parametrize(
    ("mixed", "rows"), [(None, None), (0, 0), (1, 2), (2, 2), (3, 4), (5, 6), (6, 6), (7, None), (8, None)]
)
def test_rows_with_one_document_take_the_causal_kernel(mixed, rows):
    """FlexAttention for the rows with several documents, rounded up to a few sizes; causal for the others."""
    documents = torch.zeros(8, 256, dtype=torch.int64)
    documents[: 8 if mixed is None else mixed, 100:] = 1
    index = torch.arange(256)
    layout = TokenLayout(index, index, documents, documents, mixed_rows=mixed)
    mask = document_mask(layout)
    assert mask.is_causal == (rows == 0)
    assert mask.rows == (rows or None)
    q, k, v = (torch.randn(8, heads, 256, 16) for heads in (4, 2, 2))
    with torch.no_grad():
        got = attend(q, k, v, mask)
    right = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=dense_mask(SHAPE, layout, None), enable_gqa=True
    )
    assert torch.allclose(got, right, atol=1e-5)
