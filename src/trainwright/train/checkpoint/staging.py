"""The copy of the state that a save writes, so that training continues meanwhile.

On a GPU the copy runs on its own stream, concurrent with the next forward and backward pass; only the next update of
the weights waits for it. Host memory is allocated once, during the first steps, because that takes seconds."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.distributed._state_dict_utils import _copy_state_dict

from trainwright.train.checkpoint.memory import host_buffers


class Stager:
    """Copies a state dict into host memory that is allocated once and reused by every save."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.buffers: dict[str, Any] | None = None
        self.source: dict[str, Any] | None = None
        self.done: torch.cuda.Event | None = None
        self._reserving: threading.Thread | None = None

    def reserve(self, state: dict[str, Any]) -> None:
        """Start allocating the memory for copies of such a state."""
        self._reserving = threading.Thread(target=self._allocate, args=(state,), name="trainwright-alloc", daemon=True)
        self._reserving.start()

    def _allocate(self, state: dict[str, Any]) -> None:
        self.buffers = host_buffers(state, self.device)

    def join(self) -> None:
        """Wait until the memory is allocated."""
        if self._reserving is not None:
            self._reserving.join()
            self._reserving = None

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        """Start copying; the result is complete after `finish`."""
        self.join()
        if self.buffers is None:
            self._allocate(state)
        assert self.buffers is not None
        if self.stream is None:
            return _copy_state_dict(state, self.buffers)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            staged = _copy_state_dict(state, self.buffers, non_blocking=True)
            self.done = self.stream.record_event()
        self.source = state  # must not be freed while it is being copied
        return staged

    def wait_before_update(self) -> None:
        """Make the GPU finish the copy before it changes the weights; the CPU does not wait."""
        if self.done is not None:
            torch.cuda.current_stream().wait_event(self.done)

    def finish(self) -> None:
        """Wait until the copy is complete (called by the thread that writes it)."""
        if self.done is not None:
            self.done.synchronize()
        self.source = None


def state_bytes(state: dict[str, Any]) -> int:
    """Bytes of every tensor of the whole model's state, over all ranks."""
    total = 0
    for value in state.values():
        if isinstance(value, dict):
            total += state_bytes(value)
        elif isinstance(value, Tensor):
            total += value.numel() * value.element_size()
    return total
