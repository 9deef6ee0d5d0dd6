"""The parts that dense blocks and mixtures of experts share: the linear layer, the activations and the plain MLP."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.shape import ModelShape


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with tanh. In compiled code by the sigmoid, which it equals: the tanh of a GPU is slower than memory."""
    if not torch.compiler.is_compiling():
        return F.gelu(x, approximate="tanh")
    wide = x.float()
    return (wide * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))).to(x.dtype)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu_tanh,
    "gelu": F.gelu,
    "gelu-tanh": gelu_tanh,
    "relu": F.relu,
}


class Linear(nn.Linear):
    """A linear layer whose product can be replaced (float8) without changing its parameters."""

    product = staticmethod(F.linear)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


class MLP(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.bias or shape.mlp_bias
        self.gate = Linear(shape.hidden, shape.ffn, bias=bias) if shape.gated else None
        self.up = Linear(shape.hidden, shape.ffn, bias=bias)
        self.down = Linear(shape.ffn, shape.hidden, bias=bias)
        self.activation = ACTIVATIONS[shape.activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))
