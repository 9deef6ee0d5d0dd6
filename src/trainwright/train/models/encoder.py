"""The encoder behind BERT, RoBERTa and ESM-2: plain single-device PyTorch with attention in both directions. BERT and
RoBERTa have a norm after each residual sum, ESM-2 before each layer; all end in BERT's language-model head."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models.attention import FULL, AttentionMask, document_mask
from trainwright.train.models.block_mask import TokenLayout
from trainwright.train.models.decoder import MLP, Attention, Linear, norm
from trainwright.train.models.initialise import normal
from trainwright.train.models.rotary import Angles
from trainwright.train.models.shape import TOKEN_TYPES, ModelShape

STD = 0.02  # BERT, RoBERTa, ESM-2
BIAS_COLUMNS = 8  # the bias of the output head is one more column of it; products want multiples of 8


@dataclass(frozen=True)
class EncoderInputs:
    """Inputs of a forward pass beside the tokens. With `targets` the model returns the summed loss times `scale`."""

    positions: Tensor
    cos_sin: Angles | None = None  # rotary cosine and sine
    mask: AttentionMask = FULL
    embed_scale: Tensor | None = None  # ESM-2: a factor for each token's embedding
    chosen: Tensor | None = None  # indices, over all tokens of the batch, that the head is computed for; None: all
    targets: Tensor | None = None  # of the chosen tokens
    scale: Tensor | None = None


def bidirectional_mask(tokens: Tensor, documents: Tensor | None, mixed_rows: int | None) -> AttentionMask:
    """Every token sees every token of its document."""
    if documents is None:
        return FULL
    if tokens.device.type != "cuda":
        return AttentionMask(dense=documents[:, None, :, None] == documents[:, None, None, :])
    # A query that lies behind all keys sees them all: the causal block mask becomes one for both directions.
    length = tokens.shape[1]
    keys = torch.arange(length, device=tokens.device)
    layout = TokenLayout(torch.full_like(keys, length), keys, documents, documents, mixed_rows=mixed_rows)
    return replace(document_mask(layout), full=True)


class EncoderBlock(nn.Module):
    """Attention then MLP, with the norm before each (ESM-2) or after each residual sum (BERT, RoBERTa)."""

    def __init__(self, shape: ModelShape, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.post_norm = shape.family in TOKEN_TYPES
        self.attention_norm = norm(shape)
        self.attention = attention(shape)
        self.mlp_norm = norm(shape)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos_sin: Angles | None, mask: AttentionMask, keep: Tensor | None = None) -> Tensor:
        """`keep`, of stochastic depth, multiplies what attention and MLP add, [2, tokens, 1]."""
        if self.post_norm:
            x = self.attention_norm(x + self.attention(self.gather_tokens(x), cos_sin, mask))
            return self.mlp_norm(x + self.mlp(self.gather_tokens(x)))
        attended = self.attention(self.gather_tokens(self.attention_norm(x)), cos_sin, mask)
        x = x + (attended if keep is None else attended * keep[0])
        y = self.mlp(self.gather_tokens(self.mlp_norm(x)))
        return x + (y if keep is None else y * keep[1])

    # Tensor parallelism replaces it: between layers a rank then holds a slice of the sequence.
    gather_tokens: Callable[[Tensor], Tensor] = staticmethod(lambda x: x)


class LanguageHead(nn.Module):
    """What comes before the tied output table, and that table's bias."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.dense = Linear(shape.hidden, shape.hidden)
        self.norm = norm(shape)
        self.bias = nn.Parameter(torch.empty(shape.vocab))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(x)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """The whole model, or with `layers`, `first` and `last` one pipeline stage of it under the same parameter names.
    The output table is the embedding's, so the last stage has a copy of it."""

    def __init__(
        self, shape: ModelShape, layers: Iterable[int] | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.first, self.last = shape, first, last
        layers = range(shape.layers) if layers is None else layers
        types = TOKEN_TYPES.get(shape.family, 0)
        learned = first and shape.position == "learned"
        if first or last:
            self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Embedding(shape.context, shape.hidden) if learned else None
        self.types = nn.Embedding(types, shape.hidden) if first and types else None
        self.embed_norm = norm(shape) if first and types else None
        self.blocks = nn.ModuleDict({str(i): EncoderBlock(shape) for i in layers})
        self.norm = norm(shape) if last and not types else None
        self.head = LanguageHead(shape) if last else None
        self.loss: Callable[..., Tensor] = biased_cross_entropy

    @staticmethod
    def initial_value(shape: ModelShape, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        return normal(name, size, STD, seed, device)

    def layers(self) -> list[EncoderBlock]:
        return list(self.blocks.values())  # type: ignore[arg-type]

    def forward(self, x: Tensor, inputs: EncoderInputs) -> Tensor:
        """Tokens [b, s] (or the hidden states of the previous stage) to hidden states, logits or the loss."""
        x = self.hidden(x, inputs)
        return x if self.head is None else self.finish(x, self.head, inputs)

    def finish(self, states: Tensor, head: LanguageHead, inputs: EncoderInputs) -> Tensor:
        x = states.flatten(0, 1)
        x = head(x if inputs.chosen is None else x.index_select(0, inputs.chosen))
        if inputs.targets is None:
            logits = F.linear(x, self.embed.weight, head.bias)
            return logits.view(*states.shape[:2], -1) if inputs.chosen is None else logits
        return self.loss(x, self.embed.weight, head.bias, inputs.targets, inputs.scale)

    def hidden(self, x: Tensor, inputs: EncoderInputs) -> Tensor:
        """The states after the last block, [b, s, hidden]."""
        if self.first:
            x = self.embedded(x, inputs)
        for block in self.layers():
            x = block(x, inputs.cos_sin, inputs.mask)
        if self.norm is not None:
            x = self.norm(x)
        return self.gather_tokens(x) if self.last else x

    def embedded(self, tokens: Tensor, inputs: EncoderInputs) -> Tensor:
        x: Tensor = self.embed(tokens)
        if inputs.embed_scale is not None:
            x = x * self.slice_tokens(inputs.embed_scale)[..., None].to(x.dtype)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens[:1, :1]))
        if self.positions is not None:
            x = x + self.positions(inputs.positions)
        return x if self.embed_norm is None else self.embed_norm(x)

    # Tensor parallelism replaces these two.
    slice_tokens: Callable[[Tensor], Tensor] = staticmethod(lambda x: x)
    gather_tokens: Callable[[Tensor], Tensor] = staticmethod(lambda x: x)


def biased_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor, group: Any = None, first_row: int = 0
) -> Tensor:
    """`chunked_cross_entropy` of an output table with a bias, which becomes one more column of it."""
    ones = F.pad(torch.ones_like(x[:, :1]), (0, BIAS_COLUMNS - 1))
    column = F.pad(bias[:, None], (0, BIAS_COLUMNS - 1))
    table = torch.cat([weight, column], 1)
    return chunked_cross_entropy(torch.cat([x, ones], 1), table, targets, scale, group, first_row)


MODEL = Encoder
