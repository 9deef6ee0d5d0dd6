"""A tensor times a number that lies on the GPU; imported only where there is one. torch's kernel for that reads the
number as a second tensor, and reaches a quarter of the memory's speed."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _scale(x, out, factor, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count).to(tl.float32) * tl.load(factor).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < count)


def scaled(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """x times `factor`, both contiguous, in place where `dtype` is that of x."""
    out = x if x.dtype == dtype else torch.empty_like(x, dtype=dtype)
    if x.numel():
        _scale[(triton.cdiv(x.numel(), BLOCK),)](x, out, factor, x.numel(), BLOCK=BLOCK)
    return out
