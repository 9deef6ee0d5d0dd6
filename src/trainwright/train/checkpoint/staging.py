"""The copy of the state that a save works from, so that training goes on while the files are written.

On a GPU the copy runs on a stream of its own beside the next forward and backward pass; only the next update of the
weights has to wait for it. The host memory is taken once, beside the first steps, because that takes seconds."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.distributed._state_dict_utils import _copy_state_dict

from trainwright.train.checkpoint.memory import room_for


class Stager:
    """Copies of a state dict in host memory that is allocated once and used for every save."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.room: dict[str, Any] | None = None
        self.source: dict[str, Any] | None = None
        self.done: torch.cuda.Event | None = None
        self._reserving: threading.Thread | None = None

    def reserve(self, state: dict[str, Any]) -> None:
        """Begin to take the memory that copies of such a state need."""
        self._reserving = threading.Thread(target=self._take_room, args=(state,), name="trainwright-room", daemon=True)
        self._reserving.start()

    def _take_room(self, state: dict[str, Any]) -> None:
        self.room = room_for(state, self.device)

    def settle(self) -> None:
        """Wait until the memory is taken."""
        if self._reserving is not None:
            self._reserving.join()
            self._reserving = None

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        """Start copying; the result is whole after `finish`."""
        self.settle()
        if self.room is None:
            self._take_room(state)
        assert self.room is not None
        if self.stream is None:
            return _copy_state_dict(state, self.room)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            staged = _copy_state_dict(state, self.room, non_blocking=True)
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
        elif isinstance(value, Tensor):
            total += value.numel() * value.element_size()
    return total
