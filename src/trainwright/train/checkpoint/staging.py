"""The copy of the state that a save works from, so that training goes on while the files are written.

On a GPU the copy runs on a stream of its own beside the next forward and backward pass; only the next update of the
weights has to wait for it."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed._state_dict_utils import CompanionMismatch, _copy_state_dict, _create_cpu_state_dict


class Stager:
    """Copies of a state dict in host memory that is allocated once and used for every save."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.stream: Any = torch.cuda.Stream(device) if self.cuda else None  # type: ignore[no-untyped-call]
        self.copy: dict[str, Any] | None = None
        self.source: dict[str, Any] | None = None
        self.done: torch.cuda.Event | None = None

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        """Start copying; the result is whole after `finish`."""
        if self.copy is None:
            self.copy = _create_cpu_state_dict(state, pin_memory=self.cuda)
        try:
            return self._copy(state)
        except CompanionMismatch:
            self.copy = _create_cpu_state_dict(state, pin_memory=self.cuda)
            return self._copy(state)

    def _copy(self, state: dict[str, Any]) -> dict[str, Any]:
        assert self.copy is not None
        if self.stream is None:
            return _copy_state_dict(state, self.copy)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            staged = _copy_state_dict(state, self.copy, non_blocking=True)
            self.done = self.stream.record_event()
        self.source = state  # what is being read must not be freed before it has been read
        return staged

    def hold_update(self) -> None:
        """Make the GPU finish the copy before it changes the weights; the CPU does not wait."""
        if self.done is not None:
            torch.cuda.current_stream().wait_event(self.done)

    def finish(self) -> None:
        """Wait until the copy is whole (called by the thread that writes it)."""
        if self.done is not None:
            self.done.synchronize()
        self.source = None


def state_bytes(state: dict[str, Any]) -> int:
    """Bytes of every tensor of the whole model's state, over all ranks."""
    total = 0
    for value in state.values():
        if isinstance(value, dict):
            total += state_bytes(value)
        elif isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
    return total
