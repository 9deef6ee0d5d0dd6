"""The Triton form of `attend_images`; imported only where there is a GPU. One program holds keys and values of one head
of one image; with at most 256 of them a row of scores is complete at once, and no running maximum is needed."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634


@triton.jit
def _forward(qkv, out, sums, first, all_tokens, heads, scale, TOKENS: tl.constexpr, KEYS: tl.constexpr,
             QUERIES: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    head, image = tl.program_id(0), tl.program_id(1)
    begin = (first + image * TOKENS).to(tl.int64)
    row = heads * 3 * WIDTH
    base = qkv + begin * row + head * 3 * WIDTH
    keys, lanes = tl.arange(0, KEYS), tl.arange(0, WIDTH)
    at, inside = keys[:, None] * row + lanes[None, :], keys[:, None] < TOKENS
    k = tl.load(base + WIDTH + at, mask=inside, other=0.0)
    v = tl.load(base + 2 * WIDTH + at, mask=inside, other=0.0)
    for start in range(0, TOKENS, QUERIES):
        rows = start + tl.arange(0, QUERIES)
        here = rows[:, None] < TOKENS
        q = tl.load(base + rows[:, None] * row + lanes[None, :], mask=here, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(keys[None, :] < TOKENS, scores, -float("inf"))
        peak = tl.max(scores, 1)
        shares = tl.exp2(scores - peak[:, None])
        total = tl.sum(shares, 1)
        attended = tl.dot(shares.to(v.dtype), v) / total[:, None]
        to = out + (begin + rows[:, None]) * heads * WIDTH + head * WIDTH + lanes[None, :]
        tl.store(to, attended.to(v.dtype), mask=here)
        tl.store(sums + head * all_tokens + begin + rows, peak + tl.log2(total), mask=rows < TOKENS)


@triton.jit
def _backward(qkv, out, sums, upstream, grads, first, all_tokens, heads, scale, plain_scale, TOKENS: tl.constexpr,
              KEYS: tl.constexpr, QUERIES: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    head, image = tl.program_id(0), tl.program_id(1)
    begin = (first + image * TOKENS).to(tl.int64)
    row = heads * 3 * WIDTH
    own = begin * row + head * 3 * WIDTH
    keys, lanes = tl.arange(0, KEYS), tl.arange(0, WIDTH)
    at, inside = keys[:, None] * row + lanes[None, :], keys[:, None] < TOKENS
    k = tl.load(qkv + own + WIDTH + at, mask=inside, other=0.0)
    v = tl.load(qkv + own + 2 * WIDTH + at, mask=inside, other=0.0)
    k_grad = tl.zeros((KEYS, WIDTH), tl.float32)
    v_grad = tl.zeros((KEYS, WIDTH), tl.float32)
    for start in range(0, TOKENS, QUERIES):
        rows = start + tl.arange(0, QUERIES)
        here = rows[:, None] < TOKENS
        q_at = rows[:, None] * row + lanes[None, :]
        o_at = (begin + rows[:, None]) * heads * WIDTH + head * WIDTH + lanes[None, :]
        q = tl.load(qkv + own + q_at, mask=here, other=0.0)
        g = tl.load(upstream + o_at, mask=here, other=0.0)
        o = tl.load(out + o_at, mask=here, other=0.0)
        shift = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
        log_sum = tl.load(sums + head * all_tokens + begin + rows, mask=rows < TOKENS, other=0.0)
        shares = tl.exp2(tl.dot(q, tl.trans(k)) * scale - log_sum[:, None])
        shares = tl.where((keys[None, :] < TOKENS) & here, shares, 0.0)
        v_grad += tl.dot(tl.trans(shares.to(v.dtype)), g)
        slopes = (shares * (tl.dot(g, tl.trans(v)) - shift[:, None])).to(v.dtype)
        k_grad += tl.dot(tl.trans(slopes), q)
        tl.store(grads + own + q_at, (tl.dot(slopes, k) * plain_scale).to(v.dtype), mask=here)
    tl.store(grads + own + WIDTH + at, (k_grad * plain_scale).to(v.dtype), mask=inside)
    tl.store(grads + own + 2 * WIDTH + at, v_grad.to(v.dtype), mask=inside)


def forward(qkv: Tensor, images: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    rows, heads, _, width = qkv.shape
    out = torch.empty(rows, heads, width, dtype=qkv.dtype, device=qkv.device)
    sums = torch.empty(heads, rows, dtype=torch.float32, device=qkv.device)
    first = 0
    for count, length in zip(images, tokens, strict=True):
        keys = max(16, triton.next_power_of_2(length))
        _forward[(heads, count)](
            qkv, out, sums, first, rows, heads, LOG2_E * width**-0.5,
            TOKENS=length, KEYS=keys, QUERIES=min(64, keys), WIDTH=width, num_warps=4,
        )  # fmt: skip
        first += count * length
    return out, sums


def backward(qkv: Tensor, out: Tensor, sums: Tensor, upstream: Tensor, images: list[int], tokens: list[int]) -> Tensor:
    rows, heads, _, width = qkv.shape
    grads = torch.empty_like(qkv)
    first = 0
    for count, length in zip(images, tokens, strict=True):
        keys = max(16, triton.next_power_of_2(length))
        queries, warps = (keys, 4) if keys <= 64 else (32, 8)  # the fastest of 12 pairs each on an H200
        _backward[(heads, count)](
            qkv, out, sums, upstream, grads, first, rows, heads, LOG2_E * width**-0.5, width**-0.5,
            TOKENS=length, KEYS=keys, QUERIES=queries, WIDTH=width, num_warps=warps,
        )  # fmt: skip
        first += count * length
    return grads
