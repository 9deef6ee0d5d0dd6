"""What recipes with many scales per matrix have in common. A product contracts the rows of both its matrices, so each
of the three products of a layer casts its matrices anew, along the dimension that it contracts.

All values are e4m3: with scales as fine as these, gradients need no wider range. Scales are powers of two, so that the
casts of one matrix along its rows and along its columns round it alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

KIND = torch.float8_e4m3fn
LIMIT = torch.finfo(KIND).max
EXPONENT = 0x7F800000  # the bits of an fp32 number that are its power of two

Scaled = tuple[Tensor, Tensor]  # float8 values, contiguous, and their inverse scales
Cast = Callable[[Tensor], Scaled]


def scale_for(largest: Tensor) -> Tensor:
    """The power of two that brings numbers of at most this size into the range of e4m3."""
    scale = LIMIT / largest.float().clamp(min=1e-12)
    return (scale.view(torch.int32) & EXPONENT).view(torch.float32)


def to_float8(scaled: Tensor) -> Tensor:
    return scaled.clamp(-LIMIT, LIMIT).to(KIND)


def cast_strips(x: Tensor, width: int) -> Scaled:
    """One scale for each `width` numbers of a row."""
    strips = x.unflatten(1, (-1, width))  # type: ignore[no-untyped-call]
    scale = scale_for(strips.abs().amax(dim=-1))
    values = to_float8(strips.float() * scale.unsqueeze(-1)).flatten(1)
    return values.contiguous(), scale.reciprocal()


def wide(values: Tensor, inverse: Tensor) -> Tensor:
    """The fp32 matrix that float8 values and their inverse scales (one for each part of equal size) stand for."""
    rows, columns = (size // parts for size, parts in zip(values.shape, inverse.shape, strict=True))
    return values.float() * inverse.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def product_of(
    cast: Cast, cast_weight: Cast, multiply: Callable[[Scaled, Scaled, bool], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """x @ weight.t(), with gradients; `multiply(left, right, precise)` is left @ right.t()."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, trains: bool) -> Tensor:
            # The input of the weight's gradient is kept in float8, which is half of what it would take in bf16.
            ctx.save_for_backward(weight, *(cast(x.t()) if trains else ()))
            return multiply(cast(x), cast_weight(weight), False)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
            weight, *columns = ctx.saved_tensors
            grad = grad.contiguous()
            x_grad = multiply(cast(grad), cast_weight(weight.t()), True)
            if not columns:  # a frozen weight under LoRA
                return x_grad, None, None
            return x_grad, multiply(cast(grad.t()), (columns[0], columns[1]), True), None

    def product(x: Tensor, weight: Tensor) -> Tensor:
        trains = weight.requires_grad and torch.is_grad_enabled()
        return Product.apply(x, weight, trains)  # type: ignore[no-untyped-call, no-any-return]

    return product
