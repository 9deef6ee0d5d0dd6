"""Initial values of the parameters. Each tensor has its own generator, seeded by its name, so that every parallel plan
starts from the same model, and a rank creates one tensor at a time and keeps only its slice."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from trainwright.train.models.shape import ModelShape

STD = 0.02  # GPT-2, GPT-3, Falcon; Llama and Mistral trainers use the same
RESIDUAL = ("attention.out.weight", "mlp.down.weight", "mlp.shared.down.weight", "mlp.experts.down")


def initial_value(shape: ModelShape, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
    """The whole fp32 tensor of one parameter. Layers that write into the residual stream are scaled by the depth
    (GPT-2, section 2.3), norms start as identities and biases at zero."""
    if name.endswith("bias"):
        return torch.zeros(size, device=device)
    if "norm" in name:
        return torch.full(size, 0.0 if shape.norm_offset else 1.0, device=device)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
    std = STD / math.sqrt(2 * shape.layers) if name.endswith(RESIDUAL) else STD
    return torch.empty(size, device=device).normal_(0.0, std, generator=generator)
