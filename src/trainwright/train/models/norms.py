"""The norms of a shape."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.shape import ModelShape


class RMSNorm(nn.RMSNorm):
    """With `offset`, the weight is the distance to 1 (Gemma)."""

    def __init__(self, width: int, eps: float, offset: bool = False) -> None:
        super().__init__(width, eps=eps)
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to(x, self.weight)

    def apply_to(self, x: Tensor, weight: Tensor) -> Tensor:
        if not self.offset:
            return F.rms_norm(x, self.normalized_shape, weight, self.eps)
        return (F.rms_norm(x.float(), self.normalized_shape, 1.0 + weight.float(), self.eps)).to(x.dtype)


def norm(shape: ModelShape) -> nn.Module:
    if shape.norm == "rmsnorm":
        return RMSNorm(shape.hidden, shape.norm_eps, shape.norm_offset)
    return nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias)
