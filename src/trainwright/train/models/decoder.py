"""The one decoder behind GPT-2/3, Llama, Mistral, Qwen, Falcon and MPT: plain single-device PyTorch. A `ModelShape`
selects its features; tensor, context, pipeline and data parallelism are applied from outside
(trainwright.train.parallel)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models.attention import CAUSAL, AttentionMask, attend
from trainwright.train.models.rotary import apply_rotary
from trainwright.train.models.shape import ModelShape

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


@dataclass(frozen=True)
class ForwardInputs:
    """Inputs of a forward pass beside the tokens. With `targets` the model returns the summed loss times `scale`."""

    positions: Tensor
    cos_sin: tuple[Tensor, Tensor] | None = None  # rotary cosine and sine
    mask: AttentionMask = CAUSAL
    targets: Tensor | None = None
    scale: Tensor | None = None


class Linear(nn.Linear):
    """A linear layer whose product can be replaced (float8) without changing its parameters."""

    product = staticmethod(F.linear)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


def norm(shape: ModelShape) -> nn.Module:
    if shape.norm == "rmsnorm":
        return nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
    return nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias)


class Attention(nn.Module):
    """Causal attention with any grouping of heads. The rows of `qkv` are ordered by key-value head (its queries, its
    key, its value), so that a slice of the rows is a set of complete heads."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.width = shape.width_per_head
        self.group = shape.heads // shape.kv_heads
        rows = (shape.heads + 2 * shape.kv_heads) * self.width
        self.qkv = Linear(shape.hidden, rows, bias=shape.bias or shape.qkv_bias)
        self.out = Linear(shape.heads * self.width, shape.hidden, bias=shape.bias or shape.out_bias)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.width, eps=shape.norm_eps) if shape.qk_norm else None for _ in range(2)
        )
        self.kernel: Callable[[Tensor, Tensor, Tensor, AttentionMask], Tensor] = attend

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor] | None, mask: AttentionMask) -> Tensor:
        b, s, _ = x.shape
        heads = self.qkv(x).view(b, s, -1, self.group + 2, self.width)
        q, k, v = (part.reshape(b, s, -1, self.width) for part in heads.split([self.group, 1, 1], dim=3))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if cos_sin is not None:
            q, k = apply_rotary(q, cos_sin), apply_rotary(k, cos_sin)
        attended = self.kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        return self.out(attended.transpose(1, 2).reshape(b, s, -1))


class MLP(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.bias or shape.mlp_bias
        self.gate = Linear(shape.hidden, shape.ffn, bias=bias) if shape.activation == "swiglu" else None
        self.up = Linear(shape.hidden, shape.ffn, bias=bias)
        self.down = Linear(shape.ffn, shape.hidden, bias=bias)
        self.activation = ACTIVATIONS.get(shape.activation, F.silu)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention then MLP, each after its norm; or both in parallel on the block's input (Falcon)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.parallel = shape.parallel_block
        self.attention_norm = norm(shape)
        self.attention = Attention(shape)
        self.mlp_norm = norm(shape) if not self.parallel or shape.parallel_norms == 2 else None
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor] | None, mask: AttentionMask) -> Tensor:
        inner = self.attention_norm(x)
        attended = self.attention(inner, cos_sin, mask)
        if self.mlp_norm is None:
            return x + attended + self.mlp(inner)
        if self.parallel:
            return x + attended + self.mlp(self.mlp_norm(x))
        x = x + attended
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """The whole model, or with `layers`, `first` and `last` one pipeline stage of it under the same parameter names."""

    def __init__(
        self, shape: ModelShape, layers: Iterable[int] | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.first, self.last = shape, first, last
        layers = range(shape.layers) if layers is None else layers
        if first or (last and shape.tied):
            self.embed = nn.Embedding(shape.vocab, shape.hidden)
        if first and shape.position == "learned":
            self.positions = nn.Embedding(shape.context, shape.hidden)
        self.blocks = nn.ModuleDict({str(i): Block(shape) for i in layers})
        if last:
            self.norm = norm(shape)
            if not shape.tied:
                self.head = Linear(shape.hidden, shape.vocab, bias=False)
        self.loss: Callable[..., Tensor] = chunked_cross_entropy

    def layers(self) -> list[Block]:
        return list(self.blocks.values())  # type: ignore[arg-type]

    def forward(self, x: Tensor, inputs: ForwardInputs) -> Tensor:
        """Tokens [b, s] (or the hidden states of the previous stage) to hidden states, logits or the loss."""
        if self.first:
            x = self.embed(x)
            if self.shape.position == "learned":
                x = x + self.positions(inputs.positions)
        for block in self.layers():
            x = block(x, inputs.cos_sin, inputs.mask)
        return self.finish(x, inputs) if self.last else x

    def finish(self, x: Tensor, inputs: ForwardInputs) -> Tensor:
        weight = self.embed.weight if self.shape.tied else self.head.weight
        x = self.norm(x)
        if inputs.targets is None:
            return F.linear(x, weight)
        return self.loss(x, weight, inputs.targets, inputs.scale)


MODEL = Decoder
