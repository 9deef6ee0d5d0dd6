"""Host memory for the copy of a whole state, in one piece, pinned where a GPU will fill it.

Torch's own pinned memory would round every tensor up to a power of two, and one core would take page after page of it
while all other CUDA calls wait. Here the pages are large, all cores take them, and they are pinned in short turns."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

ALIGNMENT = 4096
TURN = 256 << 20  # bytes pinned at once: other threads' CUDA calls wait that long
PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device of the process


def room_for(state: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The same structure with empty tensors in host memory; of a distributed tensor, this rank's part."""
    memory = HostMemory(_bytes_of(state), device)
    return memory.like(state)


class HostMemory:
    def __init__(self, size: int, device: torch.device) -> None:
        mapped = mmap.mmap(-1, max(size, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            mapped.madvise(mmap.MADV_HUGEPAGE)
        self.all = torch.frombuffer(mapped, dtype=torch.uint8)
        self.used = 0
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._pin(mapped)

    def _pin(self, mapped: mmap.mmap) -> None:
        turns = [self.all[at : at + TURN] for at in range(0, len(self.all), TURN)]
        # What is pinned must be let go before it is unmapped; at the end of the process the driver does both.
        weakref.finalize(mapped, _unpin, [turn.data_ptr() for turn in turns]).atexit = False
        for turn in turns:
            turn.zero_()  # by all cores: the driver would take the pages with one
            torch.cuda.check_error(_driver().cudaHostRegister(turn.data_ptr(), len(turn), PORTABLE))

    def like(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.like(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            part = self.like(value._local_tensor)
            # The public `from_local` would move the part to the mesh's device; here it is meant to stay here.
            return DTensor(part, value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        return self._take(value) if isinstance(value, Tensor) else value

    def _take(self, tensor: Tensor) -> Tensor:
        begin, self.used = self.used, self.used + _aligned(tensor)
        return self.all[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


def _unpin(addresses: list[int]) -> None:
    for address in addresses:
        _driver().cudaHostUnregister(address)


def _driver() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _bytes_of(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_bytes_of(item) for item in value.values())
    part = value._local_tensor if isinstance(value, DTensor) else value
    return _aligned(part) if isinstance(part, Tensor) else 0


def _aligned(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
