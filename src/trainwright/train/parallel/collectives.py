"""The two collectives of tensor and context parallelism, as differentiable functions: each is the other's gradient."""

from __future__ import annotations

import torch
import torch.distributed._functional_collectives as functional
from torch import Tensor


def gather(x: Tensor, dim: int, group) -> Tensor:
    """Every rank's slice of `dim`, in rank order. Backward: the gradients of all ranks, summed, this rank's slice."""
    return _Gather.apply(x, dim, group)


def reduce_scatter(x: Tensor, dim: int, group) -> Tensor:
    """This rank's slice of `dim` of the sum over the ranks. Backward: gather."""
    return _ReduceScatter.apply(x, dim, group)


def _gather(x: Tensor, dim: int, group) -> Tensor:
    return functional.wait_tensor(functional.all_gather_tensor(x.contiguous(), dim, group))


def _reduce_scatter(x: Tensor, dim: int, group) -> Tensor:
    return functional.wait_tensor(functional.reduce_scatter_tensor(x.contiguous(), "sum", dim, group))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, dim: int, group) -> Tensor:
        ctx.where = dim, group
        return _gather(x, dim, group)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _reduce_scatter(grad, *ctx.where), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, dim: int, group) -> Tensor:
        ctx.where = dim, group
        return _reduce_scatter(x, dim, group)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _gather(grad, *ctx.where), None, None
