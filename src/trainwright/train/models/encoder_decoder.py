"""T5 (arXiv 1910.10683), both the first version (ReLU, tied tables) and 1.1 (gated GELU, a head of its own): plain
single-device PyTorch. Positions are a learned bias on the attention scores, by bucket of distance, for all layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models.decoder import Attention, Linear, norm
from trainwright.train.models.initialise import normal
from trainwright.train.models.shape import ModelShape

BUCKETS, FARTHEST = 32, 128  # of distances; all beyond the farthest share a bucket


@dataclass(frozen=True)
class Seq2SeqInputs:
    """The decoder's side. With `targets` the model returns the summed loss times `scale`, else the logits."""

    tokens: Tensor  # of the decoder, [b, t]
    targets: Tensor | None = None
    scale: Tensor | None = None


def attend_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention without the usual division by the root of the width, which T5 leaves to its initial weights."""
    mask = None if bias is None else bias.expand(q.shape[0], -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


class FeedForward(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        gated = shape.activation == "geglu"
        self.gate = Linear(shape.hidden, shape.ffn, bias=False) if gated else None
        self.up = Linear(shape.hidden, shape.ffn, bias=False)
        self.down = Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.relu(self.up(x)))  # type: ignore[no-any-return]
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """The decoder's queries over the encoder's states; the rows of `kv` are ordered by head (key, value)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.width = shape.width_per_head
        inner = shape.heads * self.width
        self.q = Linear(shape.hidden, inner, bias=False)
        self.kv = Linear(shape.hidden, 2 * inner, bias=False)
        self.out = Linear(inner, shape.hidden, bias=False)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = self.q(x).view(*x.shape[:2], -1, self.width).transpose(1, 2)
        pairs = self.kv(memory).view(*memory.shape[:2], -1, 2, self.width)
        k, v = (part.squeeze(3).transpose(1, 2) for part in pairs.split(1, dim=3))
        return self.out(attend_biased(q, k, v, None).transpose(1, 2).reshape(*x.shape[:2], -1))  # type: ignore[no-any-return]


class T5Block(nn.Module):
    """Attention, in the decoder attention over the encoder, then MLP; a norm before each."""

    def __init__(self, shape: ModelShape, crosses: bool) -> None:
        super().__init__()
        self.attention_norm = norm(shape)
        self.attention = Attention(shape)
        self.attention.kernel = attend_biased  # type: ignore[assignment]
        self.cross_norm = norm(shape) if crosses else None
        self.cross = CrossAttention(shape) if crosses else None
        self.mlp_norm = norm(shape)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), None, bias)  # type: ignore[arg-type]
        if self.cross is not None and self.cross_norm is not None and memory is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.mlp(self.mlp_norm(x))


class EncoderDecoder(nn.Module):
    """The whole model; it has no pipeline stages."""

    def __init__(
        self, shape: ModelShape, layers: Iterable[int] | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.first, self.last = shape, True, True
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.encoder_bias, self.decoder_bias = (nn.Embedding(BUCKETS, shape.heads) for _ in range(2))
        self.encoder_blocks = nn.ModuleDict({str(i): T5Block(shape, False) for i in range(shape.layers)})
        self.decoder_blocks = nn.ModuleDict({str(i): T5Block(shape, True) for i in range(shape.layers)})
        self.encoder_norm, self.decoder_norm = norm(shape), norm(shape)
        if not shape.tied:
            self.head = Linear(shape.hidden, shape.vocab, bias=False)
        self.loss: Callable[..., Tensor] = chunked_cross_entropy

    @staticmethod
    def initial_value(shape: ModelShape, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        """As in T5's own code: queries are small, because their scores are not divided; an embedding has spread 1."""
        std = size[-1] ** -0.5
        if name.endswith("bias.weight"):
            std = shape.hidden**-0.5
        if name == "embed.weight":
            std = 1.0
        value = normal(name if not name.endswith("bias.weight") else name + ".table", size, std, seed, device)
        small = shape.width_per_head**-0.5
        if name.endswith("attention.qkv.weight"):
            value.view(shape.heads, 3, -1)[:, 0] *= small
        return value * small if name.endswith("cross.q.weight") else value

    def layers(self) -> list[T5Block]:
        return [*self.encoder_blocks.values(), *self.decoder_blocks.values()]  # type: ignore[list-item]

    def forward(self, tokens: Tensor, inputs: Seq2SeqInputs) -> Tensor:
        """Encoder tokens [b, s] and decoder tokens [b, t] to logits [b, t, vocabulary], or to the loss."""
        x = self.embed(tokens)
        bias = position_bias(self.encoder_bias, tokens.shape[1], causal=False)
        for block in self.encoder_blocks.values():
            x = block(x, bias, None)
        memory = self.encoder_norm(x)
        x = self.embed(inputs.tokens)
        bias = position_bias(self.decoder_bias, inputs.tokens.shape[1], causal=True)
        for block in self.decoder_blocks.values():
            x = block(x, bias, memory)
        x = self.decoder_norm(x)
        if self.shape.tied:
            x = x * self.shape.hidden**-0.5
        weight = self.embed.weight if self.shape.tied else self.head.weight
        if inputs.targets is None:
            return F.linear(x, weight)
        return self.loss(x, weight, inputs.targets, inputs.scale)


def position_bias(table: nn.Embedding, length: int, causal: bool) -> Tensor:
    """[1, heads, length, length], to be added to the scores."""
    bias = table(buckets(length, causal, table.weight.device)).permute(2, 0, 1)[None]
    if not causal:
        return bias.contiguous()  # type: ignore[no-any-return]
    hidden = torch.ones(length, length, dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(hidden, -torch.inf)


@lru_cache(maxsize=8)
def buckets(length: int, causal: bool, device: torch.device) -> Tensor:
    """The bucket of each query and key: near distances have their own, farther ones share one by their logarithm. The
    encoder has half of the buckets for each direction."""
    index = torch.arange(length)
    distance = index[:, None] - index[None, :]
    count = BUCKETS if causal else BUCKETS // 2
    after = torch.zeros_like(distance) if causal else (distance < 0) * count
    distance = distance.clamp(min=0) if causal else distance.abs()
    near = count // 2
    far = near + (
        torch.log(distance.clamp(min=1).float() / near) / math.log(FARTHEST / near) * (count - near)
    ).long().clamp(max=count - near - 1)  # fmt: skip
    return (after + torch.where(distance < near, distance, far)).to(device)


MODEL = EncoderDecoder
