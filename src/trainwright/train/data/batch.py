"""One micro-batch: the interface between the loader and the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

IGNORED = -100  # a target with this value adds nothing to the loss


@dataclass(slots=True)
class Batch:
    """`b` packed samples of `s` tokens. `documents` is None when attention may cross document boundaries."""

    tokens: Tensor  # int64 [b, s]
    targets: Tensor  # int64 [b, s], IGNORED where the next token belongs to another document
    positions: Tensor  # int64 [b, s], counted from the start of each document
    documents: Tensor | None = None  # int64 [b, s], the number of the document within its row
    chosen: Tensor | None = None  # int64 [n], masked LM: indices over all tokens of those with a target
    embed_scale: Tensor | None = None  # float32 [b, s], ESM-2: a factor for each token's embedding
    mixed_rows: int | None = None  # only the first so many rows hold several documents; None: not known

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; from pinned memory the copies overlap with compute."""
        return self._map(lambda t: t.to(device, non_blocking=True))

    def pin(self) -> Batch:
        """The same batch in pinned memory, so that the copy to a GPU is asynchronous."""
        return self._map(Tensor.pin_memory)

    def ignore_rows(self, rows: list[bool]) -> None:
        """Let these rows add nothing to the loss."""
        self.targets[rows] = IGNORED

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return type(self)(**values)
