"""The one decoder behind GPT-2/3, NeoX, Llama, Mistral, Qwen, Gemma, OLMo, Phi, Falcon, MPT, GPT-OSS and the
mixtures of experts: plain single-device PyTorch. A `ModelShape` selects its features; tensor, context, pipeline, expert
and data parallelism are applied from outside (trainwright.train.parallel)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models.attention import CAUSAL, AttentionMask, attend
from trainwright.train.models.latent import LatentAttention
from trainwright.train.models.mlp import MLP, Linear
from trainwright.train.models.moe import MoE, Routed, add_loss
from trainwright.train.models.norms import RMSNorm, norm
from trainwright.train.models.rotary import Angles, apply_rotary
from trainwright.train.models.shape import ModelShape, layer_shape

# What models of other kinds are made of, too.
__all__ = ["MLP", "MODEL", "Attention", "Block", "Decoder", "ForwardInputs", "Linear", "norm"]


@dataclass(frozen=True)
class ForwardInputs:
    """Inputs of a forward pass beside the tokens. With `targets` the model returns the summed loss times `scale`."""

    positions: Tensor
    cos_sin: Angles | None = None  # rotary cosine and sine
    mask: AttentionMask = CAUSAL
    targets: Tensor | None = None
    scale: Tensor | None = None


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
        self.wide = shape.wide_qk_norm
        widths = [heads * self.width if self.wide else self.width for heads in (shape.heads, shape.kv_heads)]
        self.q_norm, self.k_norm = (
            RMSNorm(width, shape.norm_eps, shape.norm_offset) if shape.qk_norm or self.wide else None
            for width in widths
        )
        self.scale = (self.width / shape.query_scale) ** 0.5 if shape.query_scale else 1.0  # on top of the kernel's
        self.sinks = nn.Parameter(torch.empty(shape.heads)) if shape.sinks else None
        self.kernel: Callable[..., Tensor] = attend

    def forward(self, x: Tensor, cos_sin: Angles | None, mask: AttentionMask) -> Tensor:
        b, s, _ = x.shape
        heads = self.qkv(x).view(b, s, -1, self.group + 2, self.width)
        q, k, v = (part.reshape(b, s, -1, self.width) for part in heads.split([self.group, 1, 1], dim=3))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.normed(self.q_norm, q), self.normed(self.k_norm, k)
        if cos_sin is not None:
            q, k = apply_rotary(q, cos_sin), apply_rotary(k, cos_sin)
        if self.scale != 1.0:
            q = q * self.scale
        more = () if self.sinks is None else (self.local_sinks(),)
        attended = self.kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, *more)
        return self.out(attended.transpose(1, 2).reshape(b, s, -1))

    def local_sinks(self) -> Tensor:
        assert self.sinks is not None
        return self.sinks

    def normed(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x.flatten(2)).view_as(x) if self.wide else norm(x)


class Block(nn.Module):
    """Attention then MLP (or experts), each between its norms; or both in parallel on the block's input (Falcon)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.parallel = shape.parallel_block
        self.windowed = bool(shape.window)
        two = not self.parallel or shape.parallel_norms == 2
        self.attention_norm = norm(shape) if shape.pre_norms else None
        self.attention = LatentAttention(shape) if shape.latent_kv else Attention(shape)
        self.attention_post_norm = norm(shape) if shape.post_norms else None
        self.mlp_norm = norm(shape) if shape.pre_norms and two else None
        self.mlp = MoE(shape) if shape.experts else MLP(shape)
        self.mlp_post_norm = norm(shape) if shape.post_norms else None

    def forward(self, x: Tensor, cos_sin: Angles | None, mask: AttentionMask) -> Tensor | Routed:
        mask = mask if self.windowed or mask.windowless is None else mask.windowless
        if cos_sin is not None:
            cos_sin = cos_sin[2:] if self.windowed and len(cos_sin) == 4 else cos_sin[:2]
        inner = _normed(self.attention_norm, x)
        attended = _normed(self.attention_post_norm, self.attention(inner, cos_sin, mask))
        if self.parallel:
            return x + attended + self.mlp(inner if self.mlp_norm is None else self.mlp_norm(x))
        x = x + attended
        y = self.mlp(_normed(self.mlp_norm, x))
        if isinstance(y, tuple):
            return x + _normed(self.mlp_post_norm, y[0]), y[1], y[2]
        return x + _normed(self.mlp_post_norm, y)


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


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
        self.blocks = nn.ModuleDict({str(i): Block(layer_shape(shape, i)) for i in layers})
        if last:
            self.norm = norm(shape)
            if not shape.tied:
                self.head = Linear(shape.hidden, shape.vocab, bias=False)
        self.loss: Callable[..., Tensor] = chunked_cross_entropy
        self.balance_weight = 0.0  # of the experts' balance loss in the loss
        self.expert_load: dict[str, Tensor] = {}  # layer: tokens per expert since the last update

    def layers(self) -> list[Block]:
        return list(self.blocks.values())  # type: ignore[arg-type]

    def named_layers(self) -> list[tuple[str, Block]]:
        """The blocks with the numbers of their layers."""
        return list(self.blocks.items())  # type: ignore[arg-type]

    def forward(self, x: Tensor, inputs: ForwardInputs) -> Tensor:
        """Tokens [b, s] (or the hidden states of the previous stage) to hidden states, logits or the loss."""
        if self.first:
            x = self.embed(x)
            if self.shape.embed_scale:
                x = x * torch.tensor(self.shape.hidden**0.5, dtype=x.dtype)
            if self.shape.position == "learned":
                x = x + self.positions(inputs.positions)
        losses = []
        for layer, block in self.named_layers():
            y = block(x, inputs.cos_sin, inputs.mask)
            if isinstance(y, tuple):
                x, loss, load = y
                losses.append(loss)
                self.count_load(layer, load)
            else:
                x = y
        if losses and self.balance_weight and torch.is_grad_enabled():
            x = add_loss(x, torch.stack(losses).sum(), self.balance_weight)
        return self.finish(x, inputs) if self.last else x

    def count_load(self, layer: str, load: Tensor) -> None:
        if torch.is_grad_enabled():
            self.expert_load[layer] = self.expert_load[layer] + load if layer in self.expert_load else load

    def finish(self, x: Tensor, inputs: ForwardInputs) -> Tensor:
        weight = self.embed.weight if self.shape.tied else self.head.weight
        x = self.norm(x)
        if inputs.targets is None:
            return capped(F.linear(x, weight), self.shape.logit_cap)
        more = {"cap": self.shape.logit_cap} if self.shape.logit_cap else {}
        return self.loss(x, weight, inputs.targets, inputs.scale, **more)


def capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


MODEL = Decoder
