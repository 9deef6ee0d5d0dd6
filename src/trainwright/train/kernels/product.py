"""A matrix product as one operator, which takes the fastest algorithm that cuBLASLt has for its size on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("trainwright::product", mutates_args=())
def product(
    left: Tensor, right: Tensor, transpose_left: bool, transpose_right: bool, bias: Tensor | None = None
) -> Tensor:
    """left @ right, both contiguous, each transposed where told, and the bias added to each row."""
    if left.device.type != "cuda":
        y = (left.t() if transpose_left else left) @ (right.t() if transpose_right else right)
        return y if bias is None else y + bias
    from trainwright.train.kernels.cublaslt import products

    return products(left.device)(left.contiguous(), right.contiguous(), transpose_left, transpose_right, bias)


@product.register_fake
def _(left: Tensor, right: Tensor, transpose_left: bool, transpose_right: bool, bias: Tensor | None = None) -> Tensor:
    rows = left.shape[1] if transpose_left else left.shape[0]
    return left.new_empty(rows, right.shape[0] if transpose_right else right.shape[1])


OPERATOR = torch.ops.trainwright.product.default
