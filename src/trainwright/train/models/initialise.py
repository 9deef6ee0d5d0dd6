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
    if shape.norm_offset and "norm" in name:
        return torch.zeros(size, device=device)
    return normal(name, size, STD / math.sqrt(2 * shape.layers) if name.endswith(RESIDUAL) else STD, seed, device)


def normal(name: str, size: torch.Size, std: float, seed: int, device: torch.device) -> Tensor:
    """Zeros for a bias, ones for a norm, else normal numbers of that spread from the generator of that name."""
    if name.endswith("bias"):
        return torch.zeros(size, device=device)
    if "norm" in name:
        return torch.ones(size, device=device)
    return torch.empty(size, device=device).normal_(0.0, std, generator=generator_of(name, seed, device))


def generator_of(name: str, seed: int, device: torch.device) -> torch.Generator:
    """The random numbers of one tensor."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
