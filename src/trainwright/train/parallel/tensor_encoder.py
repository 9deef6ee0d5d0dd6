"""Tensor and sequence parallelism of an Encoder, applied from outside. Between layers each rank holds a slice of the
sequence; attention and MLP gather their inputs, because a norm after the residual sum works on slices."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.decoder import Linear
from trainwright.train.models.encoder import Encoder, biased_cross_entropy
from trainwright.train.parallel.collectives import gather
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.tensor import (
    ColumnLinear,
    PositionSlice,
    RowLinear,
    VocabularySlice,
    _swap,
    copy_of,
    slice_of,
)


class CopiedLinear(Linear):
    """The whole layer on every rank; the loss is a sum over slices of the vocabulary, so gradients are partial."""

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, copy_of(self.weight), None if self.bias is None else copy_of(self.bias))


class SliceLayerNorm(nn.LayerNorm):
    """A norm of this rank's slice of the sequence."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else copy_of(self.bias)
        return F.layer_norm(x, self.normalized_shape, copy_of(self.weight), bias, self.eps)


class CopiedEmbedding(nn.Embedding):
    """A small table on every rank."""

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, copy_of(self.weight))


def sliced_loss(
    x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor, group: Any, first_row: int
) -> Tensor:
    return biased_cross_entropy(x, slice_of(weight), slice_of(bias), targets, scale, group, first_row)


def apply_tensor_encoder(model: Encoder, layout: Layout) -> None:
    """Turn an Encoder on the meta device into this rank's part of it."""
    first_row = layout.tensor_rank * -(-model.shape.vocab // layout.plan.tp)
    whole = partial(gather, dim=1, group=layout.tensor_group)
    for block in model.layers():
        block.gather_tokens = whole
        for norm in (block.attention_norm, block.mlp_norm):
            _swap(norm, SliceLayerNorm, layout)
        for column in (block.attention.qkv, block.mlp.up):
            _swap(column, ColumnLinear, layout, weight=0, bias=0)
        for row in (block.attention.out, block.mlp.down):
            _swap(row, RowLinear, layout, weight=1)
    if model.first or model.last:
        _swap(model.embed, VocabularySlice, layout, weight=0).first_row = first_row
    if model.positions is not None:
        table = _swap(model.positions, PositionSlice, layout)
        table.rank, table.ranks = layout.tensor_rank, layout.plan.tp
    if model.types is not None:
        _swap(model.types, CopiedEmbedding, layout)
    for outer in (model.embed_norm, model.norm, None if model.head is None else model.head.norm):
        if outer is not None:
            _swap(outer, SliceLayerNorm, layout)
    if model.head is not None:
        _swap(model.head.dense, CopiedLinear, layout)
        _swap(model.head, type(model.head), layout, bias=0)
    model.loss = partial(sliced_loss, group=layout.tensor_group, first_row=first_row)
    model.slice_tokens = lambda x: x.chunk(layout.plan.tp, dim=1)[layout.tensor_rank]
    model.gather_tokens = whole
