"""One microbatch as the engine takes it: the contract between the loader and the model."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

IGNORED = -100  # a target with this value adds nothing to the loss


@dataclass(slots=True)
class Batch:
    """`b` packed samples of `s` tokens. `documents` is None when attention may cross document borders."""

    tokens: Tensor  # int64 [b, s]
    targets: Tensor  # int64 [b, s], IGNORED where the next token belongs to another document
    positions: Tensor  # int64 [b, s], counted from the start of each document
    documents: Tensor | None = None  # int64 [b, s], the number of the document within its row

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; from pinned memory the copies overlap with compute."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{name: v if v is None else v.to(device, non_blocking=True) for name, v in values.items()})

    def pin(self) -> Batch:
        """The same batch in pinned memory, so that the copy to a GPU does not wait."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{name: v if v is None else v.pin_memory() for name, v in values.items()})
