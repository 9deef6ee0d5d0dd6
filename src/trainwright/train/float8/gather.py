"""Float8 all-gather: with one scale per tensor, FSDP gathers weights that each rank has cast: one byte per number, not
two. All scales of a step are computed together, with one reduction, as the weights only change between steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from trainwright.train.float8.layers import has_one_scale
from trainwright.train.float8.tensorwise import FORWARD, LEAST
from trainwright.train.float8.weight import Float8Weight
from trainwright.train.parallel.layout import Layout

LIMIT = torch.finfo(FORWARD).max


class GatheredWeights:
    """The weights of a model's float8 layers that this rank has shards of. FSDP asks each shard for what to gather
    (its extension points `fsdp_pre_all_gather` and `fsdp_post_all_gather`); parameters, optimizer and checkpoints stay
    as they are."""

    def __init__(self, models: list[Any], layout: Layout) -> None:
        self.group = layout.axis("shard").get_group() if models else None
        self.shards: list[Tensor] = []
        self.scales: list[Tensor] = []
        self.inverses: list[Tensor] = []
        for param in (param for model in models for param in float8_params(model)):
            shard = param._sharded_local_tensor
            scale, inverse = (torch.ones((), device=shard.device) for _ in range(2))
            shard.fsdp_pre_all_gather = partial(before_gather, shard, scale, inverse, param.padded_sharded_param_size)
            shard.fsdp_post_all_gather = after_gather
            param._init_extensions()
            # FSDP leaves a rank without rows where there are fewer than ranks.
            self.shards.append(shard if shard.numel() else shard.new_zeros(1))
            self.scales.append(scale)
            self.inverses.append(inverse)

    @torch.no_grad()
    def update(self) -> None:
        """The scales of the weights as they are now; on all ranks together."""
        if not self.shards:
            return
        largest = torch.stack(torch._foreach_norm(self.shards, float("inf")))
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        # As the plain path, which looks for the largest of the gathered bf16 numbers.
        scales = LIMIT / largest.bfloat16().float().clamp(min=LEAST)
        torch._foreach_copy_(self.scales, list(scales.unbind()))
        torch._foreach_copy_(self.inverses, list(scales.reciprocal().unbind()))


def float8_params(model: Any) -> list[Any]:
    """FSDP's records of the weights whose product is in float8 with one scale."""
    params = []
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        state: Any = module._get_fsdp_state()
        # torch 2.11 has one group of parameters per module, later versions a list.
        for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            params += [param for param in (group.fsdp_params if group else []) if in_float8(param)]
    return params


def in_float8(param: Any) -> bool:
    place = param._module_info
    return place.param_name == "weight" and has_one_scale(place.module)


def before_gather(
    shard: Tensor, scale: Tensor, inverse: Tensor, size: torch.Size,
    _mesh: Any, _size: Any, _stride: Any, _module: Any, _policy: Any,
) -> tuple[tuple[Tensor], Tensor]:  # fmt: skip
    """What this rank gives: its rows in float8, filled up to the `size` that every rank gives."""
    values = (shard.bfloat16().float() * scale).clamp(-LIMIT, LIMIT).to(FORWARD)
    if values.shape != size:
        padded = torch.zeros(size, dtype=torch.uint8, device=values.device)
        padded[: len(values)] = values.view(torch.uint8)
        values = padded.view(FORWARD)
    return (values,), inverse


def after_gather(
    outputs: tuple[Tensor, ...], inverse: Tensor, _dtype: torch.dtype, *, out: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """The gathered weight; `out` is the one of an earlier gather, whose memory was filled again."""
    return None if out is not None else (Float8Weight(outputs[0], inverse), ())
