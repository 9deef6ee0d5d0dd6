"""Activation checkpointing of a block: a second forward pass saves memory. Forwards are wrapped in place, so that
parameters keep their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainwright.train.float8.blockwise import blockwise_product
from trainwright.train.float8.mxfp8 import mxfp8_product
from trainwright.train.kernels import product
from trainwright.train.models.decoder import Decoder
from trainwright.train.parallel import ring  # noqa: F401  registers its operator

aten = torch.ops.aten
# Matrix products and attention are expensive to recompute; norms, rotary and activations are cheap.
KEPT = {
    aten.mm.default,
    aten.addmm.default,
    product.OPERATOR,
    aten._scaled_mm.default,
    blockwise_product._opoverload,
    mxfp8_product._opoverload,
    aten._grouped_mm.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.higher_order.flex_attention,
    torch.ops.trainwright.ring_attention.default,
}


def _save_expensive(_context: Any, op: Any, *_args: Any, **_named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def apply_checkpointing(model: Decoder, mode: str) -> None:
    """`selective` keeps what products and attention gave and recomputes the rest of a block; `full` keeps nothing."""
    if mode == "none":
        return
    extra: dict[str, Any] = {}
    if mode == "selective":
        extra["context_fn"] = partial(create_selective_checkpoint_contexts, _save_expensive)
    for block in model.layers():
        block.forward = _recomputed(block.forward, extra)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Any], extra: dict[str, Any]) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        # Only the states are arguments: the compiler accepts only tensors there.
        states = list(takewhile(lambda value: isinstance(value, Tensor), values))
        others = values[len(states) :]
        return checkpoint(
            lambda *states: forward(*states, *others), *states, use_reentrant=False, preserve_rng_state=False, **extra
        )

    return run
