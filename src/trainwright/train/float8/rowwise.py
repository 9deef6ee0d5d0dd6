"""One dynamic scale per row of the left matrix and per column of the right one: an outlier costs the precision of its
own row alone."""

from __future__ import annotations

import torch
from torch import Tensor

from trainwright.train.float8.scaled import Scaled, product_of, scale_for, to_float8, wide


def cast_rows(x: Tensor) -> Scaled:
    scale = scale_for(x.abs().amax(dim=1, keepdim=True))
    return to_float8(x.float() * scale).contiguous(), scale.reciprocal()


def multiply(left: Scaled, right: Scaled, precise: bool) -> Tensor:
    if left[0].device.type == "cpu":  # before torch 2.13 its product takes one scale only
        return (wide(*left) @ wide(*right).t()).bfloat16()
    return torch._scaled_mm(
        left[0], right[0].t(), left[1], right[1].t(), out_dtype=torch.bfloat16, use_fast_accum=not precise
    )


rowwise = product_of(cast_rows, cast_rows, multiply)
