"""Linear layers whose products with the weight take the fastest algorithm that cuBLASLt has for their size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.train.kernels.product import product
from trainwright.train.models.mlp import Linear


def choose_products(model: Any) -> str:
    """`apply_chosen_products` where cuBLASLt can be used; a line for the log."""
    from trainwright.train.kernels.cublaslt import library

    loaded = library()
    if isinstance(loaded, str):
        return f"products: the algorithms that torch takes, because cuBLASLt cannot be used ({loaded})"
    apply_chosen_products(model)
    return "products: the fastest algorithm of cuBLASLt for each size, timed at its first use"


def apply_chosen_products(model: Any) -> None:
    """Every plain linear layer of the blocks."""
    for block in model.layers():
        for layer in block.modules():
            if isinstance(layer, Linear):
                layer.product = linear  # type: ignore[method-assign, assignment]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    return _Linear.apply(flat, weight, bias).view(*x.shape[:-1], -1)  # type: ignore[no-untyped-call, no-any-return]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, False, True, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        needed = ctx.needs_input_grad
        # By torch's own product, whose choice is the fastest here, and first: it needs the gradient in memory, where
        # the others then read it. The compiler would write one copy for each operator that it does not know.
        weight_grad = grad.t() @ x if needed[1] else None
        x_grad = product(grad, weight, False, False) if needed[0] else None
        return x_grad, weight_grad, grad.sum(0) if needed[2] else None
