"""The parts that dense blocks and mixtures of experts share: the linear layer, the activations and the plain MLP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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


def gelu(x: Tensor) -> Tensor:
    """GELU. In compiled code with an error function that shares its exponential with the gradient: that of the GPU's
    library takes longer than memory."""
    return _Gelu.apply(x) if torch.compiler.is_compiling() else F.gelu(x)  # type: ignore[no-untyped-call, no-any-return]


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        wide = x.float()
        return (wide * normal_distribution(wide)[0]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        wide = x.float()
        below, density = normal_distribution(wide)
        return (upstream.float() * (below + wide * density)).to(x.dtype)


def normal_distribution(x: Tensor) -> tuple[Tensor, Tensor]:
    """The standard normal distribution below x, to 1e-7 (Abramowitz and Stegun, 7.1.26), and its density at x."""
    fall = torch.exp(-0.5 * x * x)
    t = 1 / (1 + 0.3275911 * math.sqrt(0.5) * x.abs())
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * fall
    return torch.where(x > 0, 1 - tail, tail), fall / math.sqrt(2 * math.pi)


CLAMP, CLAMPED_SLOPE = 7.0, 1.702  # of GPT-OSS
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu_tanh,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "relu": F.relu,
}


def clamped_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """GPT-OSS: a SwiGLU of bounded inputs, whose other factor is around 1."""
    gate = gate.clamp(max=CLAMP)
    return gate * torch.sigmoid(CLAMPED_SLOPE * gate) * (up.clamp(-CLAMP, CLAMP) + 1)


def gated(activation: str) -> Callable[[Tensor, Tensor], Tensor]:
    """What a gated MLP makes of its gate and its up projection."""
    if activation == "swiglu-clamped":
        return clamped_swiglu
    bend = ACTIVATIONS[activation]
    return lambda gate, up: bend(gate) * up


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
        self.bend: Callable[..., Tensor] = gated(shape.activation) if shape.gated else ACTIVATIONS[shape.activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.bend(self.up(x)))
        return self.down(self.bend(self.gate(x), self.up(x)))
