"""The parts that dense blocks and mixtures of experts share: the linear layer, the activations and the plain MLP."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.shape import ModelShape


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


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
