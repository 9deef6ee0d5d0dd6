"""Bytes that context parallelism moves and keeps, by the way in which ranks meet each other's keys. Free of torch, so
that the control side can use it."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one rank in one layer for one micro-batch."""

    forward: float  # received
    backward: float
    kept: float  # keys and values kept for the backward pass
    passing: float  # blocks of others, and gradients of keys, that are held while the layer is computed


def context_traffic(context: str, shape: ModelShape, plan: ParallelPlan, tokens: float, width: int = 2) -> Traffic:
    """`tokens`: of this rank, a micro-batch's divided by cp. `width`: bytes of a number."""
    ranks, value = plan.cp, shape.value_dim or shape.width_per_head
    block = max(shape.kv_heads / plan.tp, 1) * (shape.width_per_head + value) * tokens * width
    if ranks == 1:
        return Traffic(0.0, 0.0, block, 0.0)
    if context == "gather":
        return Traffic((ranks - 1) * block, (ranks - 1) * block, ranks * block, 2 * ranks * block)
    if context == "ring":  # the sums of gradients make one step more than the keys, to end at their owner
        return Traffic((ranks - 1) * block, (2 * ranks - 1) * block, block, 4 * block)
    queries_and_outputs = shape.heads / plan.tp * (shape.width_per_head + value) * tokens * width
    moved = (ranks - 1) / ranks * (queries_and_outputs + block)
    return Traffic(moved, moved, block, block)
