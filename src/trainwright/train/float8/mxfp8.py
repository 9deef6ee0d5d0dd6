"""MXFP8 (OCP Microscaling Formats 1.0): one power of two per 1 x 32 numbers, stored in 8 bits, which Blackwell's tensor
cores apply themselves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.train.float8.scaled import Scaled, cast_strips, product_of, wide

BLOCK = 32
EXPONENTS = torch.float8_e8m0fnu


def cast_block(x: Tensor) -> Scaled:
    return cast_strips(x, BLOCK)


def multiply(left: Scaled, right: Scaled, _precise: bool) -> Tensor:
    return torch.ops.trainwright.mxfp8_product(left[0], right[0], left[1], right[1])  # type: ignore[no-any-return]


@torch.library.custom_op(
    "trainwright::mxfp8_product",
    mutates_args=(),
    schema="(Tensor left, Tensor right, Tensor left_inverse, Tensor right_inverse) -> Tensor",
)
def mxfp8_product(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor) -> Tensor:
    """left @ right.t() in bf16."""
    if left.device.type != "cuda":
        return (wide(left, left_inverse) @ wide(right, right_inverse).t()).bfloat16()
    scales = swizzle(left_inverse), swizzle(right_inverse)
    return torch._scaled_mm(left.contiguous(), right.contiguous().t(), *scales, out_dtype=torch.bfloat16)


@mxfp8_product.register_fake
def _(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[0], dtype=torch.bfloat16)


def swizzle(inverse: Tensor) -> Tensor:
    """The exponents in the order in which tensor cores read them: tiles of 128 rows x 4 scales, rows 32 apart side by
    side."""
    rows, columns = inverse.shape
    padded = F.pad(inverse.to(EXPONENTS).view(torch.uint8), (0, -columns % 4, 0, -rows % 128))
    tiles = padded.view(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).contiguous().view(-1).view(EXPONENTS)


mxfp8 = product_of(cast_block, cast_block, multiply)
