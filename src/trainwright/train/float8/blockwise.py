"""One dynamic scale per 1 x 128 numbers of activations and gradients and per 128 x 128 of weights, as DeepSeek V3 was
trained (arXiv 2412.19437, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from trainwright.train.float8.scaled import Scaled, cast_strips, product_of, scale_for, to_float8, wide

BLOCK = 128


def cast_activation(x: Tensor) -> Scaled:
    return cast_strips(x, BLOCK)


def cast_weight(weight: Tensor) -> Scaled:
    rows, columns = (size // BLOCK for size in weight.shape)
    blocks = weight.reshape(rows, BLOCK, columns, BLOCK)
    scale = scale_for(blocks.abs().amax(dim=(1, 3)))
    values = to_float8(blocks.float() * scale[:, None, :, None]).reshape(weight.shape)
    return values.contiguous(), scale.reciprocal()


def multiply(left: Scaled, right: Scaled, _precise: bool) -> Tensor:
    return torch.ops.trainwright.blockwise_product(left[0], right[0], left[1], right[1])  # type: ignore[no-any-return]


# An operator of its own: torch's compiler does not know these scales in every version, and their layout is fixed here.
@torch.library.custom_op(
    "trainwright::blockwise_product",
    mutates_args=(),
    schema="(Tensor left, Tensor right, Tensor left_inverse, Tensor right_inverse) -> Tensor",
)
def blockwise_product(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor) -> Tensor:
    """left @ right.t() in bf16."""
    if left.device.type != "cuda":
        return (wide(left, left_inverse) @ wide(right, right_inverse).t()).bfloat16()
    scales = on_device(left, left_inverse), on_device(right, right_inverse).t()
    return torch._scaled_mm(left.contiguous(), right.contiguous().t(), *scales, out_dtype=torch.bfloat16)


@blockwise_product.register_fake
def _(left: Tensor, right: Tensor, left_inverse: Tensor, right_inverse: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[0], dtype=torch.bfloat16)


def on_device(values: Tensor, inverse: Tensor) -> Tensor:
    """Inverse scales as cuBLAS reads them: strips column by column, blocks row by row in whole 16 bytes. Where blocks
    do not fill those, each row of numbers is given its strips, which mean the same."""
    rows, columns = inverse.shape
    if rows != values.shape[0] and columns % 4 == 0:
        return inverse.contiguous()
    strips = inverse if rows == values.shape[0] else inverse.repeat_interleave(BLOCK, 0)
    return strips.t().contiguous().t()


blockwise = product_of(cast_activation, cast_weight, multiply)
