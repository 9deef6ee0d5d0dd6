"""Softmax, loss and gradient of a chunk of logits in one kernel, in place: a row is read from memory once, because the
second pass hits the cache."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 8192
LOWEST = tl.constexpr(-1e30)


@triton.jit
def _rows(logits, targets, scale, losses, vocab, columns, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    base = logits + row * columns
    target = tl.load(targets + row)
    peak = LOWEST
    total = 0.0
    lanes = tl.arange(0, BLOCK)
    for at in range(0, vocab, BLOCK):
        x = tl.load(base + at + lanes, mask=at + lanes < vocab, other=LOWEST).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher))
        peak = higher
    log_sum = peak + tl.log(total)
    weight = tl.where(target == ignored, 0.0, tl.load(scale))
    picked = tl.load(base + tl.maximum(target, 0)).to(tl.float32)
    tl.store(losses + row, (log_sum - picked) * weight)
    for at in range(0, columns, BLOCK):
        x = tl.load(base + at + lanes, mask=at + lanes < vocab, other=LOWEST).to(tl.float32)
        share = tl.exp(x - log_sum) - tl.where(at + lanes == target, 1.0, 0.0)
        tl.store(base + at + lanes, (share * weight).to(tl.bfloat16), mask=at + lanes < columns)


def score(
    logits: Tensor, targets: Tensor, scale: Tensor, vocab: int, _first_row: int, _group: None
) -> tuple[Tensor, Tensor]:
    """Summed loss, and `logits` overwritten by their gradient; columns from `vocab` on are padding."""
    losses = torch.empty(len(targets), dtype=torch.float32, device=logits.device)
    _rows[(len(targets),)](
        logits, targets, scale, losses, vocab, logits.shape[1], -100, BLOCK=BLOCK, num_warps=16
    )  # fmt: skip
    return losses.sum(), logits
