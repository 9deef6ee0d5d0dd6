"""A moving average of trained parameters, kept in frozen parameters of the same layout (DINO's teacher). It is held in
fp32: in bf16 a small step of the average would be rounded away. All tensors lie in one, so that an update is a few
kernels and not a few for each tensor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainwright.train.optimizer import AdamW, as_dtensor_like, local


class MovingAverage:
    """`pairs` are names: averaged parameter -> trained parameter."""

    def __init__(self, frozen: Mapping[str, nn.Parameter], optimizer: AdamW, pairs: Mapping[str, str]) -> None:
        self.frozen = {name: frozen[name] for name in pairs}
        self.slots = [optimizer.states[name] for name in pairs.values()]
        self.whole = self._trained().clone()
        sizes = [local(param).shape for param in self.frozen.values()]
        parts = torch.split(self.whole, [size.numel() for size in sizes])
        self.masters = {n: part.view(size) for n, part, size in zip(self.frozen, parts, sizes, strict=True)}
        self.show()

    @torch.no_grad()
    def update(self, momentum: float) -> None:
        """average = momentum * average + (1 - momentum) * trained."""
        self.whole.lerp_(self._trained(), 1 - momentum)
        self.show()

    @torch.no_grad()
    def show(self) -> None:
        """Write the average into the parameters that the model computes with."""
        shown = [local(param).view(-1) for param in self.frozen.values()]
        rounded = self.whole.to(shown[0].dtype)
        torch._foreach_copy_(shown, list(torch.split(rounded, [part.numel() for part in shown])))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {name: as_dtensor_like(master, self.frozen[name]) for name, master in self.masters.items()}

    def _trained(self) -> Tensor:
        """The fp32 values of all trained parameters, one after another."""
        if self.slots[0].low is not None:  # the two halves of each number, see kernels/adamw.py
            high = torch.cat([local(slot.param).view(torch.int16).view(-1) for slot in self.slots])
            low = torch.cat([slot.low.view(-1) for slot in self.slots if slot.low is not None])
            return ((high.int() << 16) + low.int()).view(torch.float32)
        masters = [slot.master if slot.master is not None else local(slot.param) for slot in self.slots]
        return torch.cat([master.reshape(-1) for master in masters]).to(local(self.slots[0].param).device)
