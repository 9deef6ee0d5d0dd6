"""Attention of some queries over one block of keys, as a part of attention over many blocks: forward gives the part and
its log-sum-exp, backward takes output and log-sum-exp of the whole. Plain products on a CPU; on a GPU cuDNN or flash
attention, with documents flash attention of variable lengths, and FlexAttention where scores have more to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.train.models.ring_mask import MIXED, RingMask

aten = torch.ops.aten
FLEX_KERNELS = 64  # after so many, torch would compute the rest without a fused kernel
Gradients = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Whole:
    """Output, log-sum-exp and their gradients of attention over all blocks, for the queries of one block."""

    out: Tensor
    log_sum: Tensor
    grad: Tensor
    log_sum_grad: Tensor

    def part(self, queries: slice) -> Whole:
        return Whole(*(x[:, :, queries] for x in (self.out, self.log_sum, self.grad, self.log_sum_grad)))


class Blocks(Protocol):
    """The kernel of one ring: queries [b, heads, q, d], keys and values [b, kv_heads, k, d] of one owner's piece."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, owner: int) -> tuple[Tensor, Tensor]: ...
    def backward(self, q: Tensor, k: Tensor, v: Tensor, whole: Whole, owner: int) -> Gradients: ...


def block_kernel(q: Tensor, mask: RingMask) -> Blocks:
    if mask.blocks:
        return FlexBlocks(mask)
    return PlainBlocks(mask) if q.device.type == "cpu" or q.dtype == torch.float32 else FusedBlocks(mask)


@dataclass(frozen=True)
class PlainBlocks:
    """Every feature, from the formulas; one block of scores at a time."""

    mask: RingMask

    def forward(self, q: Tensor, k: Tensor, v: Tensor, owner: int) -> tuple[Tensor, Tensor]:
        scores = self._scores(q, k, owner)[0]
        log_sum = scores.logsumexp(-1)
        shares = (scores - log_sum.masked_fill(log_sum.isinf(), 0.0)[..., None]).exp()
        return (shares @ grouped(v.float(), v)).flatten(1, 2), log_sum.flatten(1, 2)

    def backward(self, q: Tensor, k: Tensor, v: Tensor, whole: Whole, owner: int) -> Gradients:
        scores, slope = self._scores(q, k, owner)
        shares = (scores - grouped(whole.log_sum, k)[..., None]).exp()
        grad = grouped(whole.grad.float(), k)
        delta = (whole.grad.float() * whole.out.float()).sum(-1) - whole.log_sum_grad
        raw = shares * (grad @ grouped(v.float(), v).mT - grouped(delta, k)[..., None]) * slope / math.sqrt(q.shape[-1])
        query = raw @ grouped(k.float(), k)
        key, value = raw.mT @ grouped(q.float(), k), shares.mT @ grad
        return query.flatten(1, 2), key.sum(2), value.sum(2)

    def _scores(self, q: Tensor, k: Tensor, owner: int) -> tuple[Tensor, Tensor | float]:
        """Scores [b, kv_heads, queries per key, q, k], and what a soft cap multiplies their gradient by."""
        scores, mask, slope = grouped(q.float(), k) @ grouped(k.float(), k).mT / math.sqrt(q.shape[-1]), self.mask, 1.0
        if mask.cap:
            bent = torch.tanh(scores / mask.cap)
            scores, slope = mask.cap * bent, 1 - bent * bent  # type: ignore[assignment]
        causal = owner == mask.rank
        if not causal and mask.plan[owner][0] != MIXED and mask.slopes is None:
            return scores, slope
        here = mask.layout(owner, q.device)
        distance = here.queries[:, None] - here.keys[None, :]
        if mask.slopes is not None:
            scores = scores - grouped(mask.slopes[None, :, None, None] * distance, k)
        visible = (distance >= 0) & (distance < mask.window) if mask.window else distance >= 0
        if here.documents is not None and here.query_documents is not None:
            visible = visible & (here.query_documents[:, None, None, :, None] == here.documents[:, None, None, None, :])
        return scores.masked_fill(~visible, -torch.inf), slope


def grouped(x: Tensor, keys: Tensor) -> Tensor:
    """[b, heads, ...] by key-value head: [b, kv_heads, heads per key-value head, ...]."""
    return x.unflatten(1, (keys.shape[1], -1))  # type: ignore[no-untyped-call, no-any-return]


@dataclass(frozen=True)
class FusedBlocks:
    """cuDNN or flash attention: blocks in which all is visible as they are, documents as parts of variable lengths."""

    mask: RingMask

    def forward(self, q: Tensor, k: Tensor, v: Tensor, owner: int) -> tuple[Tensor, Tensor]:
        scale, width, causal = q.shape[-1] ** -0.5, v.shape[-1], owner == self.mask.rank
        q, k, v = padded(q, k, v)
        if self.mask.plan[owner][0] == MIXED:
            out, sums = aten._flash_attention_forward(
                *map(packed, (q, k, v)), *self._parts(owner), 0.0, causal, False, scale=scale
            )[:2]
            out, sums = out.unflatten(0, (len(q), -1)).transpose(1, 2), sums.unflatten(1, (len(q), -1)).transpose(0, 1)
            sums = sums.masked_fill(sums == torch.inf, -torch.inf)  # the kernel's sign of a query without keys
        elif by_cudnn(q):
            out, sums = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, scale=scale)[:2]
        else:
            out, sums = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[:2]
        return out[..., :width], sums.view(out.shape[:3])

    def backward(self, q: Tensor, k: Tensor, v: Tensor, whole: Whole, owner: int) -> Gradients:
        scale, widths, causal = q.shape[-1] ** -0.5, (q.shape[-1], k.shape[-1], v.shape[-1]), owner == self.mask.rank
        q, k, v, out, grad = padded(q, k, v, whole.out, whole.grad)
        none, sums = torch.zeros(2, dtype=torch.uint64, device=q.device), whole.log_sum  # no dropout: no random state
        if self.mask.plan[owner][0] == MIXED:
            tensors = [*map(packed, (grad, q, k, v, out)), sums.transpose(0, 1).flatten(1).contiguous()]
            flat = aten._flash_attention_backward(*tensors, *self._parts(owner), 0.0, causal, none, none, scale=scale)
            grads = [g.unflatten(0, (len(q), -1)).transpose(1, 2) for g in flat]
        else:
            sizes = None, None, q.shape[2], k.shape[2], 0.0, causal
            tensors = [*map(dense, (grad, q, k, v, out)), sums.contiguous()]
            if by_cudnn(q):
                tensors[-1] = tensors[-1][..., None]
                grads = aten._scaled_dot_product_cudnn_attention_backward(
                    *tensors, none, none, None, *sizes, scale=scale
                )
            else:
                grads = aten._scaled_dot_product_flash_attention_backward(*tensors, *sizes, none, none, scale=scale)
        query, key, value = (g[..., :width] for g, width in zip(grads, widths, strict=True))
        return query, key, value

    def _parts(self, owner: int) -> tuple[Tensor, Tensor, int, int]:
        _, longest_query, longest_key, count = self.mask.plan[owner]
        assert self.mask.parts is not None
        queries, keys = (side[: count + 1] for side in self.mask.parts[owner])
        return queries, keys, longest_query, longest_key


def by_cudnn(q: Tensor) -> bool:
    return q.shape[-1] <= 128 and bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]


def padded(*tensors: Tensor) -> list[Tensor]:
    """All of one width that the kernels take, a multiple of 8; zeros change neither scores nor outputs."""
    width = -(-max(x.shape[-1] for x in tensors) // 8) * 8
    return [x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in tensors]


def packed(x: Tensor) -> Tensor:
    """[b, heads, s, d] to [b x s, heads, d]."""
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def dense(x: Tensor) -> Tensor:
    """The same values, laid out as the kernels give them: [b, s, heads, d]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@dataclass(frozen=True)
class FlexBlocks:
    """FlexAttention for windows, ALiBi, soft caps and sinks. Its backward knows only its own log-sum-exp, so the
    forward of a block is repeated and its part in the whole is differentiated."""

    mask: RingMask

    def forward(self, q: Tensor, k: Tensor, v: Tensor, owner: int) -> tuple[Tensor, Tensor]:
        named = {"block_mask": self.mask.blocks[owner], "enable_gqa": q.shape[1] != k.shape[1], "return_lse": True}
        change = self._score_change(owner, q.device)
        out, log_sum = flex(q.device.type)(q, k, v, score_mod=change, **named)
        return out, log_sum

    def backward(self, q: Tensor, k: Tensor, v: Tensor, whole: Whole, owner: int) -> Gradients:
        inputs = q, k, v = q.detach().requires_grad_(), k.detach().requires_grad_(), v.detach().requires_grad_()
        with torch.enable_grad():
            part, log_sum = self.forward(q, k, v, owner)
        share = (log_sum.detach().float() - whole.log_sum).exp()[..., None]
        grad = whole.grad.float()
        moved = (grad * (part.detach().float() - whole.out.float())).sum(-1) + whole.log_sum_grad
        upstream = ((share * grad).to(part.dtype), (share[..., 0] * moved).to(log_sum.dtype))
        query, key, value = torch.autograd.grad((part, log_sum), inputs, upstream)
        return query, key, value

    def _score_change(self, owner: int, device: torch.device) -> Callable[..., Tensor] | None:
        mask, cap, slopes = self.mask, self.mask.cap, self.mask.slopes
        if cap:
            return lambda score, _b, _head, _query, _key: cap * torch.tanh(score / cap)
        if slopes is None:
            return None
        here = mask.layout(owner, device)
        queries, keys = here.queries, here.keys
        return lambda score, _b, head, query, key: score + slopes[head] * (keys[key] - queries[query])


@cache
def flex(device: str) -> Callable[..., Any]:
    from torch._dynamo import config as dynamo
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cuda":
        return flex_attention
    # Three sizes of pieces, with and without gradients, layers with and without a window: each has its own kernel.
    dynamo.recompile_limit = max(dynamo.recompile_limit, FLEX_KERNELS)
    return torch.compile(flex_attention)
