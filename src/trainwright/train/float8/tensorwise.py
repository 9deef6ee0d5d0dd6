"""One dynamic scale per tensor, e4m3 for activations and weights, e5m2 for gradients: the fastest recipe. Compiled with
their block, the casts fuse into the neighbouring kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.train.float8.weight import Float8Weight

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
LEAST = 1e-12  # that a largest number is taken for, so that zeros have a scale


def tensorwise(x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(weight, Float8Weight):
        return _GatheredProduct.apply(x, weight, weight.float8, weight.inverse_scale)  # type: ignore[no-untyped-call, no-any-return]
    return _Product.apply(x, weight)  # type: ignore[no-untyped-call, no-any-return]


def cast(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """(x in float8, its inverse scale)."""
    limit = torch.finfo(kind).max
    scale = limit / x.abs().amax().float().clamp(min=LEAST)
    return (x.float() * scale).clamp(-limit, limit).to(kind), scale.reciprocal()


def product(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor, precise: bool) -> Tensor:
    """left @ right; the hardware needs `left` row-major and `right` column-major."""
    scales = left_inverse, right_inverse
    return torch._scaled_mm(left, right, *scales, out_dtype=torch.bfloat16, use_fast_accum=not precise)


def column_major(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_inverse = cast(x, FORWARD)
        w8, w_inverse = cast(weight, FORWARD)
        ctx.save_for_backward(x8, weight, x_inverse, w_inverse)
        return product(x8, w8.t(), x_inverse, w_inverse, precise=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x8, weight, x_inverse, w_inverse = ctx.saved_tensors
        w8 = (weight.float() / w_inverse).to(FORWARD)
        return gradients(grad, x8, w8, x_inverse, w_inverse, ctx.needs_input_grad[1])


class _GatheredProduct(torch.autograd.Function):
    """The same for a weight that is in float8 already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _weight: Tensor, w8: Tensor, w_inverse: Tensor) -> Tensor:
        x8, x_inverse = cast(x, FORWARD)
        ctx.save_for_backward(x8, w8, x_inverse, w_inverse)
        return product(x8, w8.t(), x_inverse, w_inverse, precise=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        return *gradients(grad, *ctx.saved_tensors, ctx.needs_input_grad[1]), None, None


def gradients(
    grad: Tensor, x8: Tensor, w8: Tensor, x_inverse: Tensor, w_inverse: Tensor, trains: bool
) -> tuple[Tensor, Tensor | None]:
    """Of the input and, unless it is frozen (LoRA), of the weight."""
    g8, g_inverse = cast(grad.contiguous(), BACKWARD)
    x_grad = product(g8, column_major(w8), g_inverse, w_inverse, precise=True)
    if not trains:
        return x_grad, None
    return x_grad, product(g8.t().contiguous(), column_major(x8), g_inverse, x_inverse, precise=True)
