"""Tensor parallelism of vision transformers, applied from outside: a classifier, or DINO's student and teacher. An
image has an odd number of tokens, so every rank holds whole images between layers, as in T5: only the heads of
attention and the columns of the MLP are split. Every rank computes what lies outside of the blocks."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.decoder import Linear
from trainwright.train.parallel.collectives import sum_gradients
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.tensor import ColumnLinear, _swap, slice_of
from trainwright.train.parallel.tensor_seq2seq import ClosingLinear


class WholeLinear(Linear):
    """The whole layer on every rank, of whole images: each sees the whole gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, slice_of(self.weight), None if self.bias is None else slice_of(self.bias))


class WholeLayerNorm(nn.LayerNorm):
    """The same for a norm."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else slice_of(self.bias)
        return F.layer_norm(x, self.normalized_shape, slice_of(self.weight), bias, self.eps)


WHOLE: dict[type, type] = {Linear: WholeLinear, nn.LayerNorm: WholeLayerNorm}


def apply_tensor_vision(model: Any, layout: Layout) -> None:
    """Turn a model on the meta device into this rank's part of it."""
    for block in model.layers():
        block.gather_tokens = partial(sum_gradients, group=layout.tensor_group)
        for column in (block.attention.qkv, block.mlp.up):
            _swap(column, ColumnLinear, layout, weight=0, bias=0)
        for row in (block.attention.out, block.mlp.down):
            _swap(row, ClosingLinear, layout, weight=1)
    for module in model.modules():
        kind = type(module)
        if kind not in (ColumnLinear, ClosingLinear):
            _swap(module, WHOLE.get(kind, kind), layout)
        if hasattr(module, "local"):
            module.local = slice_of
