"""LoRA (arXiv 2106.09685), applied to a plain model from outside: each linear layer of the blocks gets two narrow
matrices, and only those are trained. A layer that gives queries, keys and values together has an adapter for each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.decoder import Attention, Linear
from trainwright.train.models.initialise import generator_of

DOWN, UP = "lora_a", "lora_b"


@dataclass(frozen=True, slots=True)
class LoRAOptions:
    rank: int = 16
    alpha: float = 32.0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoRALinear(Linear):
    """x W' + scale x A' B'. `parts`, where given, are the rows of W for queries, keys and values."""

    lora_a: nn.Parameter  # [parts x rank, in]
    lora_b: nn.Parameter  # [out, rank]
    scale: float
    groups: tuple[int, int, int] | None  # key-value heads, queries per key-value head, width of a head
    enabled: bool = True

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return self.frozen(x)
        a, b = self.local_adapters()
        # B with zeros where an output does not belong to an adapter: one product serves queries, keys and values.
        wide = b if self.groups is None else spread(b, self.groups)
        return self.frozen(x) + F.linear(F.linear(x, a), self.scale * wide)

    def frozen(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)

    def local_adapters(self) -> tuple[Tensor, Tensor]:
        return self.lora_a, self.lora_b


def spread(b: Tensor, groups: tuple[int, int, int]) -> Tensor:
    """B [out, rank] of queries, keys and values as [out, 3 x rank]: each row has numbers for its own adapter only."""
    heads, queries, width = groups
    rank = b.shape[1]
    rows = torch.split(b.view(heads, queries + 2, width, rank), [queries, 1, 1], dim=1)
    parts = [F.pad(part, (n * rank, (2 - n) * rank)) for n, part in enumerate(rows)]
    return torch.cat(parts, dim=1).view(-1, 3 * rank)


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """The model as it was before it was adapted."""
    layers = [module for module in model.modules() if isinstance(module, LoRALinear)]
    for layer in layers:
        layer.enabled = False
    try:
        yield
    finally:
        for layer in layers:
            layer.enabled = True


def apply_lora(model: Any, options: LoRAOptions) -> None:
    """Freeze a model on the meta device and give the linear layers of its blocks adapters."""
    model.requires_grad_(False)
    for block in model.layers():
        for module in list(block.modules()):
            groups = None
            for name, layer in list(module.named_children()):
                if type(layer) is Linear:
                    fused = isinstance(module, Attention) and name == "qkv"
                    groups = (_kv_heads(layer, module), module.group, module.width) if fused else None
                    _adapt(layer, options, groups)


def _kv_heads(layer: nn.Linear, attention: Attention) -> int:
    return layer.out_features // ((attention.group + 2) * attention.width)


def _adapt(layer: Any, options: LoRAOptions, groups: tuple[int, int, int] | None) -> None:
    layer.__class__ = LoRALinear
    layer.scale, layer.groups = options.scale, groups
    weight, parts = layer.weight, 3 if groups else 1
    layer.lora_a = nn.Parameter(weight.new_empty(parts * options.rank, weight.shape[1]))
    layer.lora_b = nn.Parameter(weight.new_empty(weight.shape[0], options.rank))


def is_adapter(name: str) -> bool:
    return name.endswith((DOWN, UP))


def initial_adapter(name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
    """A is uniform as in the paper's code and PEFT, B is zero: training starts from the frozen model."""
    if name.endswith(UP):
        return torch.zeros(size, device=device)
    bound = 1 / math.sqrt(size[1])
    return torch.empty(size, device=device).uniform_(-bound, bound, generator=generator_of(name, seed, device))
