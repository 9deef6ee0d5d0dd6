"""Tensor parallelism of T5, applied from outside. The lengths of its two sides need not be divisible, so every rank
holds whole sequences between layers, unlike in decoders and encoders: a norm opens the part that is split over the
ranks, where gradients are summed on the way back, and the output layer closes it with a sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.decoder import Linear
from trainwright.train.models.encoder_decoder import EncoderDecoder, T5Block
from trainwright.train.models.norms import RMSNorm
from trainwright.train.parallel.collectives import sum_gradients, sum_values
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.tensor import ColumnLinear, VocabularySlice, _swap, slice_of, sliced_loss


class OpeningNorm(RMSNorm):
    """Its output goes to the slices of all ranks; its weight sees the whole gradient on each of them."""

    def forward(self, x: Tensor) -> Tensor:
        return sum_gradients(self.apply_to(x, slice_of(self.weight)), self.group)


class ClosingLinear(Linear):
    """A slice of the input columns; every rank gets the sum."""

    group: Any

    def forward(self, x: Tensor) -> Tensor:
        y = sum_values(self.product(x, slice_of(self.weight), None), self.group)
        return y if self.bias is None else y + slice_of(self.bias)


class WholeVocabularySlice(VocabularySlice):
    """A slice of the vocabulary; every rank gets whole sequences."""

    def combine(self, rows: Tensor) -> Tensor:
        return sum_values(rows, self.group)


class HeadSlice(nn.Embedding):
    """A table with a column per attention head, of which this rank has some."""

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, slice_of(self.weight))


def apply_tensor_seq2seq(model: EncoderDecoder, layout: Layout) -> None:
    """Turn a T5 on the meta device into this rank's part of it."""
    first_row = layout.tensor_rank * -(-model.shape.vocab // layout.plan.tp)
    for block in model.layers():
        _apply_block(block, layout)
    _swap(model.embed, WholeVocabularySlice, layout, weight=0).first_row = first_row
    for table in (model.encoder_bias, model.decoder_bias):
        _swap(table, HeadSlice, layout, weight=1)
    for norm in (model.encoder_norm, model.decoder_norm):
        _swap(norm, OpeningNorm, layout)
    if not model.shape.tied:
        _swap(model.head, ColumnLinear, layout, weight=0)
    model.loss = partial(sliced_loss, group=layout.tensor_group, first_row=first_row)


def _apply_block(block: T5Block, layout: Layout) -> None:
    for norm in (block.attention_norm, block.cross_norm, block.mlp_norm):
        if norm is not None:
            _swap(norm, OpeningNorm, layout)
    columns = [block.attention.qkv, block.mlp.gate, block.mlp.up]
    rows = [block.attention.out, block.mlp.down]
    if block.cross is not None:
        columns += [block.cross.q, block.cross.kv]
        rows.append(block.cross.out)
    for column in columns:
        if column is not None:
            _swap(column, ColumnLinear, layout, weight=0)
    for row in rows:
        _swap(row, ClosingLinear, layout, weight=1)
