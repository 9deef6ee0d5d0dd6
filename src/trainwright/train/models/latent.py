"""Multi-head latent attention (DeepSeek V2, arXiv 2405.04434): keys and values, and mostly queries too, pass through a
narrow product; one rotary key serves all heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainwright.train.models.attention import AttentionMask, attend
from trainwright.train.models.mlp import Linear
from trainwright.train.models.norms import RMSNorm
from trainwright.train.models.rotary import Angles, apply_rotary, yarn_magnitudes
from trainwright.train.models.shape import ModelShape

LATENT_EPS = 1e-6  # of the norms inside; configs do not give it


class LatentAttention(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.width, self.rope, self.value = shape.width_per_head, shape.rope_dim, shape.value_dim
        self.latent = shape.latent_kv
        queries = shape.heads * self.width
        if shape.latent_q:
            self.q_down = Linear(shape.hidden, shape.latent_q, bias=shape.qkv_bias)
            self.q_norm = RMSNorm(shape.latent_q, LATENT_EPS)
        self.q = Linear(shape.latent_q or shape.hidden, queries, bias=False)
        self.kv_down = Linear(shape.hidden, self.latent + self.rope, bias=shape.qkv_bias)
        self.kv_norm = RMSNorm(self.latent, LATENT_EPS)
        self.kv = Linear(self.latent, shape.heads * (self.width - self.rope + self.value), bias=False)
        self.out = Linear(shape.heads * self.value, shape.hidden, bias=shape.out_bias)
        self.scale = yarn_magnitudes(shape)[1]
        self.narrow_queries, self.pairs = bool(shape.latent_q), shape.rope_pairs
        self.kernel: Callable[[Tensor, Tensor, Tensor, AttentionMask], Tensor] = attend

    def forward(self, x: Tensor, cos_sin: Angles | None, mask: AttentionMask) -> Tensor:
        assert cos_sin is not None
        b, s, _ = x.shape
        plain = self.width - self.rope
        q = self.q(self.q_norm(self.q_down(x)) if self.narrow_queries else x).view(b, s, -1, self.width)
        q_plain, q_rope = q.split([plain, self.rope], dim=-1)
        latent, k_rope = self.kv_down(x).split([self.latent, self.rope], dim=-1)
        kv = self.kv(self.kv_norm(latent)).view(b, s, -1, plain + self.value)
        k_plain, v = kv.split([plain, self.value], dim=-1)
        q_rope = apply_rotary(q_rope, cos_sin, self.pairs)
        k_rope = apply_rotary(k_rope[:, :, None], cos_sin, self.pairs).expand(-1, -1, kv.shape[2], -1)
        q, k = torch.cat([q_plain, q_rope], dim=-1), torch.cat([k_plain, k_rope], dim=-1)
        if self.scale != 1.0:
            q = q * self.scale
        attended = self.kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        return self.out(attended.transpose(1, 2).reshape(b, s, -1))
