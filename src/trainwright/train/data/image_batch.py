"""One micro-batch of images, as decoded: what is done to them (crops, colours) happens on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.train.data.batch import IGNORED


@dataclass(slots=True)
class ImageBatch:
    images: Tensor  # uint8 [b, channels, side, side]
    labels: Tensor  # int64 [b], IGNORED for a row that does not count
    dice: Tensor  # float32 [b, numbers]: each sample's own random numbers, for its crops

    @property
    def counts(self) -> Tensor:
        """Which rows count, as booleans."""
        return self.labels != IGNORED

    def ignore_rows(self, rows: list[bool]) -> None:
        self.labels[rows] = IGNORED

    def to(self, device: torch.device | str) -> ImageBatch:
        return self._map(lambda t: t.to(device, non_blocking=True))

    def pin(self) -> ImageBatch:
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> ImageBatch:
        return ImageBatch(change(self.images), change(self.labels), change(self.dice))
