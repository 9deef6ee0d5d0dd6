"""The product of a frozen weight W with an adapter B A beside it, on one GPU. W, B and A lie in one matrix

    [ W  sB ]
    [ A   0 ]

so that x W' + s x A' B' is one product of x with x A' beside it, and its gradient is one product of the upstream
gradient with its product by sB beside it. As two products, the wide results of the narrow one are written, read and
added: they take longer than its arithmetic."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROOM = 64  # columns and rows beside W, a multiple of what products are tiled by


def room_for(rank: int) -> int:
    return -(-rank // ROOM) * ROOM


def adapted_product(x: Tensor, whole: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """x [..., in] times [W sB]' where a [rank, in] is A, and b [out, rank] is sB. `whole` holds W already."""
    room = whole.shape[1] - x.shape[-1]
    wide = F.pad(x.reshape(-1, x.shape[-1]), (0, room))
    y, _ = _product(wide, whole, a, b)
    return y.view(*x.shape[:-1], -1)


# The last columns of `wide` and `upstream` and the part of `whole` beside W are scratch memory: each operator writes
# what it reads there, so that these writes need not be declared.
@torch.library.custom_op("trainwright::adapted_product", mutates_args=())
def _product(wide: Tensor, whole: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    (rank, inner), outer = a.shape, b.shape[0]
    whole[outer : outer + rank, :inner].copy_(a)
    whole[:outer, inner : inner + rank].copy_(b)
    narrow = wide[:, :inner] @ whole[outer:, :inner].t()
    wide[:, inner:].copy_(narrow)
    return wide @ whole[:outer].t(), narrow


@torch.library.custom_op("trainwright::adapted_product_backward", mutates_args=())
def _product_backward(
    upstream: Tensor, wide: Tensor, narrow: Tensor, whole: Tensor, inner: int, outer: int, rank: int
) -> tuple[Tensor, Tensor, Tensor]:
    slim = upstream[:, :outer] @ whole[:outer, inner:]
    upstream[:, outer:].copy_(slim)
    x_grad = upstream @ whole[:, :inner]
    a_grad = slim[:, :rank].t() @ wide[:, :inner]
    return x_grad, a_grad, upstream[:, :outer].t() @ narrow[:, :rank]


@_product.register_fake
def _(wide: Tensor, whole: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return wide.new_empty(wide.shape[0], b.shape[0]), wide.new_empty(wide.shape[0], wide.shape[1] - a.shape[1])


@_product_backward.register_fake
def _(
    upstream: Tensor, wide: Tensor, narrow: Tensor, whole: Tensor, inner: int, outer: int, rank: int
) -> tuple[Tensor, Tensor, Tensor]:
    return upstream.new_empty(len(upstream), inner), wide.new_empty(rank, inner), upstream.new_empty(outer, rank)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    wide, whole, a, b = inputs
    ctx.save_for_backward(wide, output[1], whole)
    ctx.sizes = a.shape[1], b.shape[0], a.shape[0]


def _gradient(ctx: Any, upstream: Tensor, _narrow: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
    wide, narrow, whole = ctx.saved_tensors
    inner, outer, rank = ctx.sizes
    room = whole.shape[1] - inner
    x_grad, a_grad, b_grad = _product_backward(F.pad(upstream, (0, room)), wide, narrow, whole, inner, outer, rank)
    return F.pad(x_grad, (0, room)), None, a_grad, b_grad


_product.register_autograd(_gradient, setup_context=_save)
