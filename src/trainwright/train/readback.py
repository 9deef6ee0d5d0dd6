"""Numbers of a step that the host reads later. Reading a tensor of a GPU waits for everything that was launched before
the read; here the copy is launched with the step itself, so that reading it waits for that step alone, and the GPU has
the next one to work on meanwhile."""

from __future__ import annotations

import torch
from torch import Tensor


class Readback:
    """The values that scalar tensors have when this is made."""

    def __init__(self, *scalars: Tensor) -> None:
        values = torch.stack([scalar.detach().float().to(scalars[0].device) for scalar in scalars])
        self.done: torch.cuda.Event | None = None
        if values.is_cuda:
            self.values = torch.empty(values.shape, pin_memory=True)
            self.values.copy_(values, non_blocking=True)
            self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.done.record(torch.cuda.current_stream(values.device))
        else:
            self.values = values

    def read(self) -> list[float]:
        """Waits until they are computed."""
        if self.done is not None:
            self.done.synchronize()
        return self.values.tolist()  # type: ignore[no-any-return]
