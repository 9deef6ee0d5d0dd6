"""Tensor and sequence parallelism, applied to a plain Decoder from outside. Between layers each rank holds a slice of
the sequence; a norm gathers it, the products work on a slice of the heads or columns, and the output layers scatter
again.

Module classes are replaced in place, so that every parameter keeps its name."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from trainwright.train.lora import LoRALinear
from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models.decoder import Attention, Block, Decoder
from trainwright.train.models.latent import LatentAttention
from trainwright.train.models.mlp import Linear
from trainwright.train.models.moe import MoE
from trainwright.train.models.norms import RMSNorm
from trainwright.train.parallel.collectives import gather, reduce_scatter, sum_over
from trainwright.train.parallel.expert import RouterCopy
from trainwright.train.parallel.layout import Layout


def slice_of(parameter: Any) -> Tensor:
    """This rank's slice of a sharded parameter."""
    return parameter.to_local()


def copy_of(parameter: Any) -> Tensor:
    """This rank's copy of a replicated parameter. It sees a part of the sequence, so its gradient is a partial sum."""
    return parameter.to_local(grad_placements=[Partial()])


class ColumnLinear(Linear):
    """A slice of the output columns, of a whole input."""

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, slice_of(self.weight), None if self.bias is None else slice_of(self.bias))


class RowLinear(Linear):
    """A slice of the input columns; the sum over the ranks comes back as a slice of the sequence."""

    group: Any

    def forward(self, x: Tensor) -> Tensor:
        y = reduce_scatter(self.product(x, slice_of(self.weight), None), 1, self.group)
        return y if self.bias is None else y + copy_of(self.bias)


class ColumnLoRA(LoRALinear):
    """A slice of the output columns, with the rows of B for them; every rank has the whole of A."""

    group: Any

    def local_adapters(self) -> tuple[Tensor, Tensor]:
        return copy_of(self.lora_a), slice_of(self.lora_b)

    def frozen(self, x: Tensor) -> Tensor:
        return self.product(x, slice_of(self.weight), None if self.bias is None else slice_of(self.bias))


class RowLoRA(LoRALinear):
    """A slice of the input columns, with the columns of A for them; both products are parts of one sum."""

    group: Any

    def local_adapters(self) -> tuple[Tensor, Tensor]:
        return slice_of(self.lora_a), copy_of(self.lora_b)

    def frozen(self, x: Tensor) -> Tensor:
        return self.product(x, slice_of(self.weight), None)

    def forward(self, x: Tensor) -> Tensor:
        y = reduce_scatter(super().forward(x), 1, self.group)
        return y if self.bias is None else y + copy_of(self.bias)


class GatheringRMSNorm(RMSNorm):
    group: Any

    def forward(self, x: Tensor) -> Tensor:
        return gather(self.apply_to(x, copy_of(self.weight)), 1, self.group)


class LocalRMSNorm(RMSNorm):
    """The norm of this rank's heads, or of what it adds to its slice of the sequence; each rank has a whole weight."""

    group: Any

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to(x, copy_of(self.weight))


class CopiedLinear(Linear):
    """A narrow layer that every rank computes in full, for its own heads."""

    group: Any

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, copy_of(self.weight), None if self.bias is None else copy_of(self.bias))


class WideRMSNorm(RMSNorm):
    """A norm over the heads of all ranks, of which this one has a slice."""

    group: Any

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        squares = sum_over(wide.square().sum(dim=-1, keepdim=True), self.group)
        normed = wide * torch.rsqrt(squares / self.normalized_shape[0] + (self.eps or 0.0))
        return (normed * slice_of(self.weight)).to(x.dtype)


class GatheringLayerNorm(nn.LayerNorm):
    group: Any

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else copy_of(self.bias)
        return gather(F.layer_norm(x, self.normalized_shape, copy_of(self.weight), bias, self.eps), 1, self.group)


class VocabularySlice(nn.Embedding):
    """A slice of the vocabulary; a token held by another rank adds 0 here."""

    group: Any
    first_row: int

    def forward(self, tokens: Tensor) -> Tensor:
        weight = slice_of(self.weight)
        index = tokens - self.first_row
        here = (index >= 0) & (index < weight.shape[0])
        return self.combine(F.embedding(index.clamp(0, weight.shape[0] - 1), weight) * here[..., None])

    def combine(self, rows: Tensor) -> Tensor:
        return reduce_scatter(rows, 1, self.group)


class PositionSlice(nn.Embedding):
    """The positions of this rank's slice of the sequence."""

    rank: int
    ranks: int

    def forward(self, positions: Tensor) -> Tensor:
        return F.embedding(positions.chunk(self.ranks, dim=1)[self.rank], copy_of(self.weight))


def sliced_loss(
    x: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, group: Any, first_row: int, cap: float = 0.0
) -> Tensor:
    return chunked_cross_entropy(x, slice_of(weight), targets, scale, group, first_row, cap)


class LocalLayerNorm(nn.LayerNorm):
    group: Any

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else copy_of(self.bias)
        return F.layer_norm(x, self.normalized_shape, copy_of(self.weight), bias, self.eps)


NORMS: dict[type, type] = {RMSNorm: GatheringRMSNorm, nn.LayerNorm: GatheringLayerNorm}
LOCAL_NORMS: dict[type, type] = {RMSNorm: LocalRMSNorm, nn.LayerNorm: LocalLayerNorm}


class GatheredInput(nn.Module):
    """Gathers the sequence in front of a layer that has no norm to do it."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return gather(x, 1, self.group)


def apply_tensor(model: Decoder, layout: Layout) -> None:
    """Turn a Decoder on the meta device into this rank's part of it."""
    for block in model.layers():
        _apply_block(block, layout)
    first_row = layout.tensor_rank * -(-model.shape.vocab // layout.plan.tp)
    if hasattr(model, "embed"):
        _swap(model.embed, VocabularySlice, layout, weight=0).first_row = first_row
    if hasattr(model, "positions"):
        table = _swap(model.positions, PositionSlice, layout)
        table.rank, table.ranks = layout.tensor_rank, layout.plan.tp
    if model.last:
        _swap(model.norm, NORMS[type(model.norm)], layout)
        if not model.shape.tied:
            _swap(model.head, ColumnLinear, layout, weight=0)
        model.loss = partial(sliced_loss, group=layout.tensor_group, first_row=first_row)


def _apply_block(block: Block, layout: Layout) -> None:
    for name in ("attention_norm", "mlp_norm"):
        norm = getattr(block, name)
        if norm is not None:
            _swap(norm, NORMS[type(norm)], layout)
        elif not block.parallel:
            setattr(block, name, GatheredInput(layout.tensor_group))
    for norm in (block.attention_post_norm, block.mlp_post_norm):
        if norm is not None:
            _swap(norm, LOCAL_NORMS[type(norm)], layout)
    if isinstance(block.attention, LatentAttention):
        _apply_latent(block.attention, layout)
    else:
        _apply_attention(block.attention, layout)
    if isinstance(block.mlp, MoE):
        _swap(block.mlp.router, RouterCopy, layout)
    mlp = block.mlp.shared if isinstance(block.mlp, MoE) else block.mlp
    if mlp is not None:
        _columns([mlp.gate, mlp.up], layout)
        _rows(mlp.down, layout)


class SlicedHeads(Attention):
    """Attention of this rank's heads."""

    def local_sinks(self) -> Tensor:
        return slice_of(self.sinks)


def _apply_attention(attention: Attention, layout: Layout) -> None:
    if attention.sinks is not None:
        attention.__class__ = SlicedHeads
        attention.sinks = nn.Parameter(_part(attention.sinks, Shard(0), layout))
    for norm in (attention.q_norm, attention.k_norm):
        if norm is not None and attention.wide:
            _swap(norm, WideRMSNorm, layout, weight=0)
        elif norm is not None:
            _swap(norm, LocalRMSNorm, layout)
    _columns([attention.qkv], layout)
    _rows(attention.out, layout)


def _apply_latent(attention: LatentAttention, layout: Layout) -> None:
    for name in ("q_down", "kv_down"):
        if hasattr(attention, name):
            _swap(getattr(attention, name), CopiedLinear, layout)
    for name in ("q_norm", "kv_norm"):
        if hasattr(attention, name):
            _swap(getattr(attention, name), LocalRMSNorm, layout)
    _columns([attention.q, attention.kv], layout)
    _rows(attention.out, layout)


def _columns(layers: list[Linear | None], layout: Layout) -> None:
    for layer in layers:
        if isinstance(layer, LoRALinear):
            if layer.groups is not None:
                heads, *rest = layer.groups
                layer.groups = (heads // layout.plan.tp, rest[0], rest[1])
            _swap(layer, ColumnLoRA, layout, weight=0, bias=0, lora_b=0)
        elif layer is not None:
            _swap(layer, ColumnLinear, layout, weight=0, bias=0)


def _rows(layer: Linear, layout: Layout) -> None:
    if isinstance(layer, LoRALinear):
        _swap(layer, RowLoRA, layout, weight=1, lora_a=1)
    else:
        _swap(layer, RowLinear, layout, weight=1)


def _swap(module: Any, kind: type, layout: Layout, **split: int) -> Any:
    """Give a module its parallel forward, and split each parameter named in `split` along that dimension."""
    module.__class__ = kind
    module.group = layout.tensor_group
    for name, param in list(module.named_parameters(recurse=False)):
        placement = Shard(split[name]) if name in split else Replicate()
        part = nn.Parameter(_part(param, placement, layout), requires_grad=param.requires_grad)
        module.register_parameter(name, part)
    return module


def _part(param: Tensor, placement: Shard | Replicate, layout: Layout) -> DTensor:
    local = param.detach()
    if isinstance(placement, Shard):
        local = local.chunk(layout.plan.tp, placement.dim)[layout.tensor_rank].contiguous()
    mesh = layout.axis("tensor")
    return DTensor.from_local(local, mesh, [placement], run_check=False, shape=param.shape, stride=param.stride())
