"""Completes gradients after backward, and counts each of them once in the global norm."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from trainwright.train.optimizer import local
from trainwright.train.parallel.layout import Layout

TIED = "embed.weight"


class Gradients:
    """The gradients of one rank under a layout."""

    def __init__(self, layout: Layout, params: dict[str, nn.Parameter], tied: bool) -> None:
        self.layout = layout
        # The first and the last pipeline stage each hold a copy of a tied embedding.
        self.tied_group = layout.subgroup(lambda ranks: [ranks[0], ranks[-1]]) if tied and layout.plan.pp > 1 else None
        self.shares: dict[float, list[str]] = {}
        for name, param in params.items():
            self.shares.setdefault(self._share(name, param), []).append(name)

    def collect(self, params: dict[str, nn.Parameter], sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of every gradient, with the partial sums of its peers added."""
        grads = {name: self._whole(sums.get(name, param.grad), param) for name, param in params.items()}
        if self.tied_group is not None and TIED in grads:
            dist.all_reduce(grads[TIED], group=self.tied_group)
        return grads

    def norm(self, grads: dict[str, Tensor]) -> Tensor:
        """The norm of the whole gradient over all ranks; of what an objective took out of it, nothing counts."""
        device = next(iter(grads.values())).device
        wide = torch.float64 if device.type == "cpu" else torch.float32  # sums on a CPU are sequential and lose digits
        squares = torch.zeros((), dtype=wide, device=device)
        for share, names in self.shares.items():
            parts = [grads[name] for name in names if name in grads]
            if parts:
                squares += torch.stack(torch._foreach_norm(parts, 2, dtype=wide)).square().sum() * share
        if self.layout.plan.world > 1:
            dist.all_reduce(squares)
        return squares.sqrt().float()

    def _whole(self, grad: Tensor | None, param: nn.Parameter) -> Tensor:
        if grad is None:
            return torch.zeros_like(local(param))
        if isinstance(grad, DTensor) and any(p.is_partial() for p in grad.placements):
            grad = grad.redistribute(placements=[Replicate() if p.is_partial() else p for p in grad.placements])
        return local(grad)

    def _share(self, name: str, param: nn.Parameter) -> float:
        """One over the number of ranks that hold this part; the second copy of a tied table counts 0."""
        if name == TIED and self.tied_group is not None and self.layout.pipeline_rank > 0:
            return 0.0
        if not isinstance(param, DTensor):
            return 1.0
        copies = 1
        for size, placement in zip(param.device_mesh.shape, param.placements, strict=True):
            copies *= size if placement.is_replicate() else 1
        return 1.0 / copies
