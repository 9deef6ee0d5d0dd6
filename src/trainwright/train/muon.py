"""Muon (Jordan et al. 2024; arXiv 2502.16982 for the scale of its steps): the momentum of a matrix is made orthogonal
before it is applied. For the matrices of the blocks; embeddings, output head, routers, norms and biases keep AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from trainwright.train.optimizer import AdamW, ParameterState, as_dtensor_like, has_decay, local, part_of

MOMENTUM, EPSILON = 0.95, 1e-7
ROUNDS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
STEP_SIZE = 0.2  # the root mean square of AdamW's updates: learning rate and decay of AdamW can be kept


class Muon(AdamW):
    """A sharded matrix is gathered for its update, which every rank computes in full and takes its part of."""

    def _slot(self, name: str, param: nn.Parameter) -> ParameterState:
        slot = super()._slot(name, param)
        if is_matrix(name, param):
            slot.second = slot.first.new_zeros(0)
        return slot

    def description(self) -> str:
        count = sum(is_matrix(name, slot.param) for name, slot in self.states.items())
        return f"Muon for {count} of {len(self.states)} parameters, AdamW for the others"

    @torch.no_grad()
    def step(self, lr: float, grads: dict[str, Tensor], clip: Tensor) -> None:
        matrices = {name: grad for name, grad in grads.items() if is_matrix(name, self.states[name].param)}
        super().step(lr, {name: grad for name, grad in grads.items() if name not in matrices}, clip)
        for name, grad in matrices.items():
            self._step_matrix(name, self.states[name], grad, lr, clip)

    def _step_matrix(self, name: str, slot: ParameterState, grad: Tensor, lr: float, clip: Tensor) -> None:
        where = slot.first.device
        ok = torch.isfinite(clip).to(where)
        scaled = torch.where(ok, grad.to(where, torch.float32) * clip.to(where), 0.0)
        slot.first.copy_(torch.where(ok, slot.first.lerp(scaled, 1 - MOMENTUM), slot.first))
        ahead = scaled.lerp(slot.first, MOMENTUM).to(local(slot.param).device)
        whole: Tensor = as_dtensor_like(ahead, slot.param)
        whole = whole.full_tensor() if whole is not ahead else ahead  # type: ignore[attr-defined]
        factor = STEP_SIZE * math.sqrt(max(whole.shape[-2:])) * lr
        update = part_of(orthogonal(whole), slot.param).to(where)
        master = self.read(name)
        self.write(name, torch.where(ok, master * (1 - lr * slot.decay) - factor * update, master))

    def state(self) -> Iterator[tuple[str, str, Tensor]]:
        for kind, name, tensor in super().state():
            if kind != "exp_avg_sq" or not is_matrix(name, self.states[name].param):
                yield kind, name, tensor


def is_matrix(name: str, param: Tensor) -> bool:
    """Whether Muon updates it: a matrix of a block, or one for each expert."""
    return has_decay(name, param) and "blocks." in name and not any(word in name for word in ("router", "norm"))


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix with (almost) equal singular values, of each matrix in the last two dimensions."""
    x = matrix.to(torch.bfloat16 if matrix.device.type == "cuda" else torch.float32)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()
