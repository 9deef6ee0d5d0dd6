"""Host memory for a copy of the whole state, in one allocation, pinned where a GPU copies into it.

Torch's own pinned memory rounds every tensor up to a power of two, and one core faults in page after page while all
other CUDA calls wait. Here pages are large, all cores fault them in, and they are pinned tensor by tensor."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device of the process


def host_buffers(state: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The same structure with empty tensors in host memory; of a distributed tensor, this rank's part."""
    if device.type != "cuda":
        return HostMemory(_bytes_of(state)).like(state)
    with torch.cuda.device(device):
        return HostMemory(_bytes_of(state), pinned=True).like(state)


class HostMemory:
    """Memory allocated front to back, in whole pages."""

    def __init__(self, size: int, pinned: bool = False) -> None:
        self.mapped, self.used, self.pinned = mmap.mmap(-1, max(size, 1)), 0, pinned
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.mapped.madvise(mmap.MADV_HUGEPAGE)
        self.addresses: list[int] = []
        # Pinned memory must be unpinned before it is unmapped; at process exit the driver does both.
        weakref.finalize(self.mapped, _unpin, self.addresses).atexit = False

    def like(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.like(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            part = self.like(value._local_tensor)
            # The public `from_local` would move the part to the mesh's device; it must stay in host memory.
            return DTensor(part, value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        return self._take(value) if isinstance(value, Tensor) else value

    def _take(self, tensor: Tensor) -> Tensor:
        if not tensor.nbytes:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        begin, self.used = self.used, self.used + _pages(tensor)
        # A storage of its own, not a view of a larger one: torch.distributed.checkpoint would copy that once more.
        place = torch.frombuffer(self.mapped, dtype=tensor.dtype, count=tensor.numel(), offset=begin)
        place.zero_()  # faults the pages in with all cores; the driver would use one
        if self.pinned:
            # Each tensor separately: a copy must not cross from one pinned range into the next.
            torch.cuda.check_error(_driver().cudaHostRegister(place.data_ptr(), self.used - begin, PORTABLE))
            self.addresses.append(place.data_ptr())
        return place.view(tensor.shape)


def _unpin(addresses: list[int]) -> None:
    for address in addresses:
        _driver().cudaHostUnregister(address)


def _driver() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _bytes_of(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_bytes_of(item) for item in value.values())
    part = value._local_tensor if isinstance(value, DTensor) else value
    return _pages(part) if isinstance(part, Tensor) else 0


def _pages(tensor: Tensor) -> int:
    return -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
