"""Applies a float8 recipe to a model from outside: linear layers keep their parameters and get another product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainwright.train.float8.blockwise import blockwise
from trainwright.train.float8.mxfp8 import mxfp8
from trainwright.train.float8.recipes import RECIPES
from trainwright.train.float8.rowwise import rowwise
from trainwright.train.float8.tensorwise import tensorwise
from trainwright.train.models.mlp import Linear

Product = Callable[[Tensor, Tensor], Tensor]
Layer = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def layer_of(product: Product, multiple: int) -> Layer:
    """A linear layer out of the product x @ weight.t() of matrices. Tokens are contracted in the backward pass, so
    their number must be a multiple too: zeros are added, which change no sum."""

    def layer(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        tokens = flat.shape[0]
        if tokens % multiple:
            flat = F.pad(flat, (0, 0, 0, -tokens % multiple))
        y = product(flat, weight)[:tokens].view(*x.shape[:-1], weight.shape[0])
        return y if bias is None else y + bias

    return layer


LAYERS: dict[str, Layer] = {
    name: layer_of(product, RECIPES[name].multiple)
    for name, product in (
        ("tensorwise", tensorwise),
        ("rowwise", rowwise),
        ("blockwise", blockwise),
        ("mxfp8", mxfp8),
    )
}


# Of a layer that gives queries, keys and values together.
JOINED = layer_of(partial(tensorwise, joined=True), RECIPES["tensorwise"].multiple)


def apply_float8(model: Any, recipe: str) -> str:
    """Every linear layer of the blocks whose widths on this rank are multiples of what the recipe needs; the output
    head stays bf16. Returns a line for the log."""
    multiple, layer = RECIPES[recipe].multiple, LAYERS[recipe]
    named = [pair for block in model.layers() for pair in block.named_modules()]
    linear = [(name, module) for name, module in named if isinstance(module, Linear)]
    fitting = [(name, module) for name, module in linear if fits(module, multiple)]
    for name, module in fitting:
        joined = recipe == "tensorwise" and name.endswith("qkv")
        module.product = JOINED if joined else layer  # type: ignore[method-assign, assignment]
    rest = len(linear) - len(fitting)
    if not fitting:
        why = f"none of {rest} linear layers has widths that are multiples of {multiple}"
        return f"note: float8 {recipe} has no effect: {why}; they stay bf16"
    left = f"; {rest} whose widths are no multiples of {multiple} stay bf16" if rest else ""
    return f"float8: {recipe} ({RECIPES[recipe].scales}), {len(fitting)} linear layers{left}"


def is_float8(module: Any) -> bool:
    return isinstance(module, Linear) and module.product in (*LAYERS.values(), JOINED)


def has_one_scale(module: Any) -> bool:
    return isinstance(module, Linear) and module.product in (LAYERS["tensorwise"], JOINED)


def fits(module: Linear, multiple: int) -> bool:
    weight = module.weight
    return all(size % multiple == 0 for size in (weight.to_local() if isinstance(weight, DTensor) else weight).shape)
