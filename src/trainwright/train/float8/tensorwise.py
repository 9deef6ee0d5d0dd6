"""One dynamic scale per tensor, e4m3 for activations and weights, e5m2 for gradients: the fastest recipe. Compiled with
their block, the casts fuse into the neighbouring kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.train.float8.weight import Float8Weight

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
LEAST = 1e-12  # that a largest number is taken for, so that zeros have a scale


def tensorwise(x: Tensor, weight: Tensor, joined: bool = False) -> Tensor:
    """`joined`: the gradient of the result is put together from others, as that of queries, keys and values is. Fused
    into the search for its largest number that would be done twice, so it is written first."""
    if isinstance(weight, Float8Weight):
        inner = weight.float8, weight.inverse_scale
        return _GatheredProduct.apply(x, weight, *inner, joined)  # type: ignore[no-untyped-call, no-any-return]
    return _Product.apply(x, weight, joined)  # type: ignore[no-untyped-call, no-any-return]


def cast(x: Tensor, kind: torch.dtype, written: bool = False) -> tuple[Tensor, Tensor]:
    """(x in float8, its inverse scale); `written`: compiled code has x in memory first."""
    limit = torch.finfo(kind).max
    largest = torch.ops.trainwright.largest(x) if written else x.abs().amax()
    scale = limit / largest.float().clamp(min=LEAST)
    return (x.float() * scale).clamp(-limit, limit).to(kind), scale.reciprocal()


@torch.library.custom_op("trainwright::largest", mutates_args=(), schema="(Tensor x) -> Tensor")
def largest_of(x: Tensor) -> Tensor:
    """x.abs().amax(), into which the compiler fuses nothing."""
    low, high = x.aminmax()
    return torch.maximum(-low, high)


@largest_of.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(())


def product(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor, precise: bool) -> Tensor:
    """left @ right; the hardware needs `left` row-major and `right` column-major."""
    scales = left_inverse, right_inverse
    return torch._scaled_mm(left, right, *scales, out_dtype=torch.bfloat16, use_fast_accum=not precise)


def column_major(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, joined: bool) -> Tensor:
        x8, x_inverse = cast(x, FORWARD)
        w8, w_inverse = cast(weight, FORWARD)
        ctx.save_for_backward(x8, weight, x_inverse, w_inverse)
        ctx.joined = joined
        return product(x8, w8.t(), x_inverse, w_inverse, precise=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x8, weight, x_inverse, w_inverse = ctx.saved_tensors
        w8 = (weight.float() / w_inverse).to(FORWARD)
        g8, g_inverse = cast(grad.contiguous(), BACKWARD, ctx.joined)
        return *gradients(g8, g_inverse, x8, w8, x_inverse, w_inverse, ctx.needs_input_grad[1]), None


class _GatheredProduct(torch.autograd.Function):
    """The same for a weight that is in float8 already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _weight: Tensor, w8: Tensor, w_inverse: Tensor, joined: bool) -> Tensor:
        x8, x_inverse = cast(x, FORWARD)
        ctx.save_for_backward(x8, w8, x_inverse, w_inverse)
        ctx.joined = joined
        return product(x8, w8.t(), x_inverse, w_inverse, precise=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        x8, w8, x_inverse, w_inverse = ctx.saved_tensors
        g8, g_inverse = cast(grad.contiguous(), BACKWARD, ctx.joined)
        return *gradients(g8, g_inverse, x8, w8, x_inverse, w_inverse, ctx.needs_input_grad[1]), None, None, None


def gradients(
    g8: Tensor, g_inverse: Tensor, x8: Tensor, w8: Tensor, x_inverse: Tensor, w_inverse: Tensor, trains: bool
) -> tuple[Tensor, Tensor | None]:
    """Of the input and, unless it is frozen (LoRA), of the weight."""
    x_grad = product(g8, column_major(w8), g_inverse, w_inverse, precise=True)
    if not trains:
        return x_grad, None
    return x_grad, product(g8.t().contiguous(), column_major(x8), g_inverse, x_inverse, precise=True)
