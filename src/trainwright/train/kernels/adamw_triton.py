"""The Triton form of `adamw_split`; imported only where there is a GPU."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit
def _update(
    high, low, first, second, grad, clip, count, lr, beta1, beta2, eps, decay, correct1, correct2, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    factor = tl.load(clip)
    here = (at < count) & (factor == factor)  # a factor that is not a number: no update
    upper = tl.load(high + at, mask=here).to(tl.int16, bitcast=True).to(tl.int32)
    lower = tl.load(low + at, mask=here).to(tl.int32)
    master = ((upper << 16) + lower).to(tl.float32, bitcast=True)
    g = tl.load(grad + at, mask=here).to(tl.float32) * factor
    m = tl.load(first + at, mask=here)
    v = tl.load(second + at, mask=here)
    m += (g - m) * (1 - beta1)
    v = v * beta2 + g * g * (1 - beta2)
    master *= 1 - lr * decay
    master -= (lr / correct1) * m / (tl.sqrt(v) / correct2 + eps)
    bits = master.to(tl.int32, bitcast=True)
    upper = (bits + 0x8000) >> 16
    tl.store(high + at, upper.to(tl.int16).to(tl.bfloat16, bitcast=True), mask=here)
    tl.store(low + at, (bits - (upper << 16)).to(tl.int16), mask=here)
    tl.store(first + at, m, mask=here)
    tl.store(second + at, v, mask=here)


def launch(tensors: tuple[Tensor, ...], clip: Tensor, lr, beta1, beta2, eps, decay, correct1, correct2) -> None:
    high, low, first, second, grad = tensors
    count = high.numel()
    if not count:
        return
    grid = (triton.cdiv(count, BLOCK),)
    _update[grid](
        high, low, first, second, grad.contiguous(), clip, count,
        lr, beta1, beta2, eps, decay, correct1, correct2, BLOCK=BLOCK,
    )  # fmt: skip
