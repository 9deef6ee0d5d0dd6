"""Data parallelism by FSDP2: parameters are split over `shard` (and context) ranks and copied over `replicate` ones;
plain replication is the case of one shard."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from trainwright.train.models.decoder import Decoder
from trainwright.train.models.moe import Experts, MoE
from trainwright.train.parallel.layout import Layout


def apply_data(model: Decoder, layout: Layout, precision: str) -> None:
    """Shard each block and then the rest. Parameters stay fp32; a bf16 copy is gathered for each block as it runs."""
    low = None if precision == "fp32" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32, cast_forward_inputs=False)
    free = reshards(layout)
    place = partial(expert_placement, ranks=layout.data_mesh.size(-1))
    for block in model.layers():
        if layout.plan.ep > 1 and isinstance(block.mlp, MoE):
            _shard_experts(block.mlp.experts, layout, policy, free)
        fully_shard(
            block, mesh=layout.data_mesh, mp_policy=policy, reshard_after_forward=free, shard_placement_fn=place
        )
    fully_shard(model, mesh=layout.data_mesh, mp_policy=policy, reshard_after_forward=False)


def _shard_experts(experts: Experts, layout: Layout, policy: MixedPrecisionPolicy, free: bool) -> None:
    mesh = layout.expert_data_mesh
    place = partial(spread_placement, ranks=mesh.size(-1))
    sharded = fully_shard(experts, mesh=mesh, mp_policy=policy, reshard_after_forward=free, shard_placement_fn=place)
    # Gradients of the tokens of all `ep` ranks meet here; as for the others they are a mean over all data ranks.
    sharded.set_gradient_divide_factor(float(layout.plan.data * layout.plan.cp))
    if mesh.device_type == "cpu" and mesh.size(-1) > 1:
        sharded.set_force_sum_reduction_for_comms(True)  # gloo cannot divide on the way


def expert_placement(param: nn.Parameter, ranks: int) -> Shard | None:
    """Experts are split by expert where all ranks get as many, else each expert along the hidden size: a dimension
    that neither expert nor tensor parallelism splits. None: FSDP's default."""
    if param.ndim < 3 or (param.shape[0] % ranks == 0 and not isinstance(param, DTensor)):
        return None
    hidden = 3 if param.ndim == 4 else 1
    return Shard(hidden) if param.shape[hidden] % ranks == 0 else None


def spread_placement(param: nn.Parameter, ranks: int) -> Shard | None:
    """The same for experts that are spread over ranks, and for their biases."""
    assert isinstance(param, DTensor)
    split = {placement.dim for placement in param.placements if isinstance(placement, Shard)}
    dims = [dim for dim in (3, 1, 2) if dim < param.ndim and dim not in split and param.shape[dim] % ranks == 0]
    return Shard(dims[0]) if dims else None


def reshards(layout: Layout) -> bool:
    """Whether a block's gathered parameters and gradients are freed after each use. A pipeline runs a stage many times
    per step, and a replica has nothing to free: both gather and reduce once per step."""
    return layout.plan.pp == 1 and layout.plan.shard * layout.plan.cp > 1


def expect_backward(model: Decoder, layout: Layout, last: bool) -> None:
    """Tell FSDP whether the coming backward is the last of the step for this model. Between replicas gradients are
    reduced only then; between shards after each backward, as unsharded gradients would not fit."""
    if not isinstance(model, FSDPModule):
        return
    if reshards(layout):
        model.set_requires_all_reduce(last)
    else:
        model.set_is_last_backward(last)
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)


def reduce_gradients(model: Decoder) -> None:
    """What FSDP does after the last backward of a step, for gradients that were completed after all of them."""
    if not isinstance(model, FSDPModule):
        return
    model.set_is_last_backward(True)
    model.set_requires_gradient_sync(True)
    model.set_reshard_after_backward(True)
    root: Any = model._get_fsdp_state()
    for state in reversed(root._state_ctx.all_states):
        # torch 2.11 has one group of parameters per module, later versions a list.
        for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            if group is not None:
                group.post_backward()
    root._root_post_backward_final_callback()
