"""Data parallelism by FSDP2: parameters are split over `shard` (and context) ranks and copied over `replicate` ones;
plain replication is the case of one shard."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from trainwright.train.models.decoder import Decoder
from trainwright.train.parallel.layout import Layout


def apply_data(model: Decoder, layout: Layout, precision: str) -> None:
    """Shard each block and then the rest. Parameters stay fp32; a bf16 copy is gathered for each block as it runs."""
    low = None if precision == "fp32" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32, cast_forward_inputs=False)
    free = reshards(layout)
    for block in model.layers():
        fully_shard(block, mesh=layout.data_mesh, mp_policy=policy, reshard_after_forward=free)
    fully_shard(model, mesh=layout.data_mesh, mp_policy=policy, reshard_after_forward=False)


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
