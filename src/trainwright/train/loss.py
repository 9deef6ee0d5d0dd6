"""Cross-entropy that never holds the full logits: the output head and the loss are computed together, a chunk of tokens
at a time, and the gradients are computed in the same pass, so that nothing of size tokens x vocabulary is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.train.data.batch import IGNORED

CHUNK_BYTES = 2 << 30  # of bf16 logits at once; larger chunks accumulate the head's gradient less often
ALIGNMENT = 64  # columns


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: Tensor,
    group: Any = None,
    first_row: int = 0,
    cap: float = 0.0,
) -> Tensor:
    """`scale` times the summed cross-entropy of hidden [..., h] against the rows of weight [vocabulary, h].

    With `group`, each rank holds the slice of the vocabulary that begins at its `first_row`, and the loss is exact over
    all of it; the gradient of `hidden` is then this rank's part, to be summed over the group. With `cap`, a logit x is
    cap * tanh(x / cap)."""
    hidden = hidden.reshape(-1, hidden.shape[-1])
    return _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets.reshape(-1), scale, group, first_row, cap
    )


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, group: Any, first_row: int, cap: float
    ) -> Tensor:
        wanted, trained = ctx.needs_input_grad[0] or ctx.needs_input_grad[1], ctx.needs_input_grad[1]
        vocab, weight = weight.shape[0], _aligned(weight)
        hidden_grad = torch.empty_like(hidden if wanted else hidden[:0])
        make = torch.empty_like if len(hidden) else torch.zeros_like  # a micro-batch may have no target at all
        weight_grad = make(weight if trained else weight[:0], dtype=torch.float32)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        score = _score(hidden) if group is None else _score_sharded
        score = partial(_score_capped, score, cap) if cap else score
        rows = _chunk_rows(hidden, weight.shape[0])
        for at in range(0, hidden.shape[0], rows):
            part = hidden[at : at + rows]
            loss, grad = score(part @ weight.t(), targets[at : at + rows], scale, vocab, first_row, group)
            total += loss
            if wanted:
                torch.mm(grad, weight, out=hidden_grad[at : at + rows])
            if trained:
                _add_product(weight_grad, grad.t(), part, fresh=at == 0)
        ctx.grads = hidden_grad, weight_grad[:vocab] if trained else None
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (hidden_grad, weight_grad), ctx.grads = ctx.grads, None
        rounded = None if weight_grad is None else _scaled(weight_grad, upstream, hidden_grad.dtype)
        return _scaled(hidden_grad, upstream, hidden_grad.dtype), rounded, None, None, None, None, None


def _scaled(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    if x.device.type == "cuda":
        from trainwright.train.kernels.scale_triton import scaled

        return scaled(x, factor, dtype)  # type: ignore[no-any-return]
    return x.mul_(factor).to(dtype)


def _aligned(weight: Tensor) -> Tensor:
    """Matrix products with unaligned columns are several times slower on a GPU: pad with rows that are not scored."""
    missing = -weight.shape[0] % ALIGNMENT if weight.device.type == "cuda" else 0
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)) if missing else weight


def _chunk_rows(hidden: Tensor, vocab: int) -> int:
    """Tokens per chunk: equal chunks, on a small GPU at most 1/64 of its memory."""
    most = CHUNK_BYTES
    if hidden.device.type == "cuda":
        most = min(most, torch.cuda.get_device_properties(hidden.device).total_memory // 64)
    chunks = max(1, math.ceil(2 * hidden.shape[0] * vocab / most))
    return max(1, math.ceil(hidden.shape[0] / chunks))


def _add_product(total: Tensor, left: Tensor, right: Tensor, fresh: bool) -> None:
    """total += left @ right (or, `fresh`, total = left @ right), accumulated in fp32 for any input type."""
    if left.device.type == "cuda" and left.dtype != torch.float32:
        product = torch.mm if fresh else partial(torch.addmm, total)
        product(left, right, out_dtype=torch.float32, out=total)
    elif fresh:
        total.copy_(left @ right)
    else:
        total += left @ right


def _score_whole(
    logits: Tensor, targets: Tensor, scale: Tensor, vocab: int, first_row: int, group: Any
) -> tuple[Tensor, Tensor]:
    """Summed loss and its gradient by the logits, where this rank holds the whole vocabulary."""
    kept = targets != IGNORED
    index = targets.clamp(min=0)
    columns = torch.arange(logits.shape[1], device=logits.device)
    full = torch.where(columns < vocab, logits.float(), -torch.inf) if vocab < logits.shape[1] else logits.float()
    log_sum = full.logsumexp(dim=-1)
    picked = full.gather(1, index[:, None])[:, 0]
    weight = kept * scale
    loss = ((log_sum - picked) * weight).sum()
    grad = (full - log_sum[:, None]).exp() - (columns[None] == index[:, None]).float()
    return loss, (grad * weight[:, None]).to(logits.dtype)


def _score_capped(score: Callable[..., tuple[Tensor, Tensor]], cap: float, logits: Tensor, *rest: Any) -> Any:
    """Any of these scores, of capped logits."""
    bent = torch.tanh(logits.float() / cap)
    loss, grad = score((cap * bent).to(logits.dtype), *rest)
    return loss, (grad.float() * (1 - bent * bent)).to(logits.dtype)


def _score_sharded(
    logits: Tensor, targets: Tensor, scale: Tensor, vocab: int, first_row: int, group: Any
) -> tuple[Tensor, Tensor]:
    """The same over a vocabulary that lies in slices on the ranks of `group`."""
    full = logits.float()
    full[:, vocab:] = -torch.inf
    peak = full.max(dim=-1).values
    dist.all_reduce(peak, dist.ReduceOp.MAX, group=group)
    index = targets - first_row
    here = (index >= 0) & (index < vocab)
    index = index.clamp(0, vocab - 1)
    sums = torch.stack([(full - peak[:, None]).exp().sum(dim=-1), full.gather(1, index[:, None])[:, 0] * here])
    dist.all_reduce(sums, group=group)
    log_sum = sums[0].log() + peak
    weight = (targets != IGNORED) * scale
    loss = ((log_sum - sums[1]) * weight).sum()
    grad = (full - log_sum[:, None]).exp_()
    grad[torch.arange(len(index), device=index.device), index] -= here.float()
    return loss, (grad * weight[:, None]).to(logits.dtype)


def _score(hidden: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    if hidden.device.type == "cuda" and hidden.dtype == torch.bfloat16:
        from trainwright.train.kernels.cross_entropy_cuda import score

        return score
    return _score_whole
