"""The collectives of tensor, context and expert parallelism, as differentiable functions."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# torch 2.13 renamed both; 2.11 has only the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter_sums = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_functional = torch.ops._c10d_functional


def gather(x: Tensor, dim: int, group: Any) -> Tensor:
    """Every rank's slice of `dim`, in rank order. Backward: the gradients of all ranks, summed, this rank's slice."""
    return _Gather.apply(x, dim, group)  # type: ignore[no-untyped-call]


def reduce_scatter(x: Tensor, dim: int, group: Any) -> Tensor:
    """This rank's slice of `dim` of the sum over the ranks. Backward: gather."""
    return _ReduceScatter.apply(x, dim, group)  # type: ignore[no-untyped-call]


def _gather(x: Tensor, dim: int, group: Any) -> Tensor:
    if torch.compiler.is_compiling():
        return compiled_gather(x, dim, dist.get_world_size(group), group.group_name)
    parts = x.new_empty(dist.get_world_size(group), *x.shape)
    _all_gather(parts.view(-1, *x.shape[1:]), x.contiguous(), group=group)
    return torch.cat(parts.unbind(0), dim)


def _reduce_scatter(x: Tensor, dim: int, group: Any) -> Tensor:
    if torch.compiler.is_compiling():
        return compiled_reduce_scatter(x, dim, dist.get_world_size(group), group.group_name)
    parts = torch.cat(x.chunk(dist.get_world_size(group), dim))
    out = parts.new_empty(parts.shape[0] // dist.get_world_size(group), *parts.shape[1:])
    _scatter_sums(out, parts, group=group)
    return out


# The same with operators that the compiler knows: in this form it finds the products that it can overlap with them.


def compiled_gather(x: Tensor, dim: int, ranks: int, group: str) -> Tensor:
    parts = _functional.wait_tensor(_functional.all_gather_into_tensor(x.contiguous(), ranks, group))
    return torch.cat(parts.chunk(ranks), dim)


def compiled_reduce_scatter(x: Tensor, dim: int, ranks: int, group: str) -> Tensor:
    parts = torch.cat(x.chunk(ranks, dim))
    return _functional.wait_tensor(_functional.reduce_scatter_tensor(parts, "sum", ranks, group))  # type: ignore[no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.where = dim, group
        return _gather(x, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _reduce_scatter(grad, *ctx.where), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.where = dim, group
        return _reduce_scatter(x, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _gather(grad, *ctx.where), None, None


def exchange(x: Tensor, leaving: list[int], arriving: list[int], group: Any) -> Tensor:
    """Rows for every rank, in rank order, to those from every rank. Backward: the way back."""
    return _Exchange.apply(x, leaving, arriving, group)  # type: ignore[no-untyped-call]


def _exchange(x: Tensor, leaving: list[int], arriving: list[int], group: Any) -> Tensor:
    out = x.new_empty(sum(arriving), *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), arriving, leaving, group=group)
    return out


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, leaving: list[int], arriving: list[int], group: Any) -> Tensor:
        ctx.where = arriving, leaving, group
        return _exchange(x, leaving, arriving, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchange(grad, *ctx.where), None, None, None


def sum_over(x: Tensor, group: Any) -> Tensor:
    """The sum over the ranks, on each of them. Backward: the sum of their gradients."""
    return _Sum.apply(x, group)  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def sum_gradients(x: Tensor, group: Any) -> Tensor:
    """`x` as it is. Backward: the sum of all ranks' gradients."""
    return _SumGradients.apply(x, group)  # type: ignore[no-untyped-call]


def sum_values(x: Tensor, group: Any) -> Tensor:
    """The sum over the ranks, on each of them, of which all compute the same from here. Backward: the gradient as it
    is."""
    return _SumValues.apply(x, group)  # type: ignore[no-untyped-call]


class _SumGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _SumValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
