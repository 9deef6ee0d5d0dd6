"""Activation checkpointing of a block: trade a second forward for memory. Forwards are wrapped in place, so that
parameters keep their names."""

from __future__ import annotations

from functools import partial

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainwright.train.models.decoder import Decoder

aten = torch.ops.aten
# Attention is dear to compute again; the products behind it are kept too. What is left (norms, activations, rotations and
# the first products of the MLP, which hold most of the memory) is recomputed.
KEPT = {
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.higher_order.flex_attention,
}


def _keep_attention(_ctx, op, *_args, **_kwargs) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def apply_checkpointing(model: Decoder, mode: str) -> None:
    """`selective` keeps the outputs of attention and recomputes the rest of a block; `full` recomputes all of it."""
    if mode == "none":
        return
    extra = {}
    if mode == "selective":
        extra["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_attention)
    for block in model.blocks.values():
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False, **extra)
