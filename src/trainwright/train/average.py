"""A moving average of trained parameters, kept in frozen parameters of the same layout (the teacher of DINO). It is held
in fp32: in bf16 a small step of the average would be rounded away."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainwright.train.optimizer import AdamW, as_dtensor_like, local


class MovingAverage:
    """`pairs` are names: averaged parameter -> trained parameter."""

    def __init__(self, frozen: Mapping[str, nn.Parameter], optimizer: AdamW, pairs: Mapping[str, str]) -> None:
        self.frozen, self.optimizer, self.pairs = frozen, optimizer, pairs
        self.masters = {name: optimizer.read(trained).detach().clone() for name, trained in pairs.items()}
        self.show()

    @torch.no_grad()
    def update(self, momentum: float) -> None:
        """average = momentum * average + (1 - momentum) * trained."""
        trained = [self.optimizer.read(name).to(self.masters[own].device) for own, name in self.pairs.items()]
        torch._foreach_lerp_(list(self.masters.values()), trained, 1 - momentum)
        self.show()

    @torch.no_grad()
    def show(self) -> None:
        """Write the average into the parameters that the model computes with."""
        torch._foreach_copy_([local(self.frozen[name]) for name in self.masters], list(self.masters.values()))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {name: as_dtensor_like(master, self.frozen[name]) for name, master in self.masters.items()}
