"""AdamW on a split fp32 master: its upper 16 bits are the bf16 parameter (rounded to nearest), the lower 16 bits a
signed correction beside it. One pass reads the gradient and both halves and writes them back."""

from __future__ import annotations

import torch
from torch import Tensor


def split(value: Tensor, high: Tensor, low: Tensor) -> None:
    """Write fp32 `value` as bf16 `high` plus int16 `low`; `join` restores it bit for bit."""
    bits = value.view(torch.int32)
    upper = (bits + 0x8000) >> 16
    high.copy_(upper.to(torch.int16).view(torch.bfloat16))
    low.copy_((bits - (upper << 16)).to(torch.int16))


def join(high: Tensor, low: Tensor) -> Tensor:
    bits = (high.contiguous().view(torch.int16).to(torch.int32) << 16) + low.to(torch.int32)
    return bits.view(torch.float32)


def adamw_split(
    tensors: tuple[Tensor, ...],
    clip: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    step: int,
) -> None:
    """One update of (high, low, first moment, second moment) by the gradient, all of one shape, in place."""
    correct1, correct2 = 1 - beta1**step, (1 - beta2**step) ** 0.5
    if tensors[0].device.type == "cuda":
        from trainwright.train.kernels.adamw_triton import launch

        return launch(tensors, clip, lr, beta1, beta2, eps, decay, correct1, correct2)
    if clip.isnan():
        return None
    high, low, first, second, grad = tensors
    grad = grad.float() * clip
    master = join(high, low)
    master.mul_(1 - lr * decay)
    first.lerp_(grad, 1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    master.addcdiv_(first, (second.sqrt() / correct2).add_(eps), value=-lr / correct1)
    split(master, high, low)
    return None
