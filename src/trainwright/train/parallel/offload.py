"""Activation offload: what a layer saves for its backward is copied to host memory during the forward, and comes back
one layer ahead of the backward. With recomputation that is the layer's input alone.

On a GPU the copies run on their own stream. Memory on the device is bounded by waiting on that stream, not by the
allocator's luck: at the end of a layer the compute stream waits for the copies of the layer before, whose memory is
then free. On a CPU the same copies are made without streams, which saves nothing and gives the same numbers."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from trainwright.errors import UserError
from trainwright.train.checkpoint.memory import HostMemory
from trainwright.train.optimizer import local

SMALLEST = 1 << 20  # bytes; a smaller tensor stays on the device


def apply_offload(model: Any, share: float, offload: ActivationOffload) -> None:
    """Wrap that share of the blocks, evenly spread. The wrapper is outermost: it sees what compiled code saves, and of
    a recomputed block its input."""
    for at, block in enumerate(model.layers()):
        if math.ceil((at + 1) * share) > math.ceil(at * share):
            block.forward = _offloaded(block, block.forward, offload)


def _offloaded(block: nn.Module, forward: Callable[..., Any], offload: ActivationOffload) -> Callable[..., Any]:
    def run(x: Tensor, *others: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(x, *others)
        layer = SavedLayer(block, others, offload)
        with saved_tensors_hooks(layer.pack, layer.unpack):
            y = forward(x, *others)
        offload.finish_forward(layer)
        return y

    return run


class ActivationOffload:
    """The copies of one process: their stream, the host memory, and the layer whose copies are under way."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.free: dict[int, list[Tensor]] = {}  # host buffers by size
        self.host_bytes = 0  # allocated, in use or not
        self.copying: SavedLayer | None = None
        self.newest: weakref.ref[SavedLayer] | None = None

    def to_host(self, source: Tensor) -> Tensor:
        """Start copying into a host buffer; `source` must not be freed before the event that is recorded after it."""
        buffer = self._buffer(source.nbytes)
        self._copy([(buffer[: source.nbytes], source)])
        return buffer

    def to_device(self, buffers: list[tuple[Tensor, int]]) -> list[Tensor]:
        """Start copying so many bytes of each buffer back, into memory of the compute stream: what used that memory
        before must have ended, and its next user comes after the event."""
        targets = [torch.empty(size, dtype=torch.uint8, device=self.device) for _, size in buffers]
        self._copy([(target, buffer[:size]) for target, (buffer, size) in zip(targets, buffers, strict=True)])
        return targets

    def _copy(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        if self.stream is None:
            for target, source in pairs:
                target.copy_(source)
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)

    def record_event(self) -> Any:
        return None if self.stream is None else self.stream.record_event()

    def wait(self, event: Any) -> None:
        """Make the GPU's compute wait; the CPU does not."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def finish_forward(self, layer: SavedLayer) -> None:
        """Free the memory of the layer before: its copies had the time of this one."""
        layer.event = self.record_event()
        layer.previous, self.newest = self.newest, weakref.ref(layer)
        before, self.copying = self.copying, layer
        if before is not None:
            before.leave_device()

    def _buffer(self, least: int) -> Tensor:
        """A free host buffer of at least that size. Sizes are rounded up by at most an eighth, because those of a
        mixture of experts differ from step to step."""
        size = rounded_up(least)
        free = self.free.get(size)
        if free:
            return free.pop()
        try:
            memory = HostMemory(size, pinned=self.stream is not None)
            buffer: Tensor = memory.like(torch.empty(size, dtype=torch.uint8, device="meta"))
        except (OSError, RuntimeError) as error:
            what = f"no host memory for more than {self.host_bytes / 2**30:.1f} GiB of offloaded activations ({error})"
            raise UserError(what, fix="a smaller --offload-activations or --micro-batch") from error
        self.host_bytes += size
        return buffer

    def release(self) -> None:
        """Free the host memory; the GPU must have finished its copies."""
        self.free.clear()
        self.host_bytes = 0

    def give_back(self, buffer: Tensor) -> None:
        """A buffer for the next copy. All copies are in the order of one stream, so it may still be in use there."""
        self.free.setdefault(buffer.nbytes, []).append(buffer)


class SavedStorage:
    """The memory of one or several saved tensors: on the device, in host memory, or both."""

    def __init__(self, device: Tensor, offload: ActivationOffload) -> None:
        self.offload = offload
        self.device: Tensor | None = device
        self.size = device.nbytes
        self.host = offload.to_host(device)

    def __del__(self) -> None:
        if hasattr(self, "host"):
            self.offload.give_back(self.host)


@dataclass(frozen=True, slots=True)
class Packed:
    """A saved tensor as a view of its storage."""

    storage: SavedStorage
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PackedParts:
    """A saved tensor that is made of others, as a distributed tensor is."""

    kind: Any
    parts: dict[str, Any]
    context: Any
    shape: torch.Size
    stride: tuple[int, ...]


class SavedLayer:
    """What one pass through one block has saved."""

    def __init__(self, block: nn.Module, inputs: tuple[Any, ...], offload: ActivationOffload) -> None:
        self.block, self.offload = block, offload
        self.shared = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(inputs)}  # with other layers
        self.storages: dict[tuple[int, int], SavedStorage] = {}  # those that are not on their way back
        self.previous: weakref.ref[SavedLayer] | None = None
        self.event: Any = None  # the end of the latest copies
        self.used = False  # the backward has begun

    def pack(self, tensor: Tensor) -> Any:
        if isinstance(tensor, AsyncCollectiveTensor):
            tensor = tensor.wait()
        whole: Any = tensor
        if is_traceable_wrapper_subclass(whole) and not isinstance(tensor, nn.Parameter):
            names, context = whole.__tensor_flatten__()
            parts = {name: self.pack(getattr(whole, name)) for name in names}
            return PackedParts(type(whole), parts, context, tensor.shape, tensor.stride())
        # Detached: an output that its own node holds would never be freed.
        return self._copy(tensor) if self.moves(tensor) else tensor.detach()

    def moves(self, tensor: Tensor) -> bool:
        """Whether it is worth its copy: large, and nothing else keeps its memory, as parameters and masks do."""
        if (
            tensor.nbytes < SMALLEST
            or tensor.device.type != self.offload.device.type
            or isinstance(tensor, nn.Parameter)
        ):
            return False
        place = tensor.untyped_storage().data_ptr()
        # Asked each time: FSDP may gather the parameters of a part of the block in the midst of it.
        return place not in self.shared and all(
            local(param).untyped_storage().data_ptr() != place for param in self.block.parameters()
        )

    def _copy(self, tensor: Tensor) -> Packed:
        memory = tensor.untyped_storage()
        key = memory.data_ptr(), tensor._version
        if key not in self.storages:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory)  # type: ignore[call-overload]
            self.storages[key] = SavedStorage(flat, self.offload)
        return Packed(self.storages[key], tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())

    def leave_device(self) -> None:
        self.offload.wait(self.event)
        for storage in self.storages.values():
            storage.device = None

    def fetch(self) -> None:
        """Start the way back. From here on only the saved tensors hold their memory, which each node frees."""
        if self.offload.copying is self:
            self.offload.copying = None
        if not self.storages:  # already on their way
            return
        absent = [storage for storage in self.storages.values() if storage.device is None]
        self.storages = {}
        targets = self.offload.to_device([(storage.host, storage.size) for storage in absent])
        for storage, target in zip(absent, targets, strict=True):
            storage.device = target
        self.event = self.offload.record_event()

    def unpack(self, packed: Any) -> Tensor:
        if not self.used:
            self._begin_backward()
        if isinstance(packed, PackedParts):
            parts = {name: self.unpack(part) for name, part in packed.parts.items()}
            whole: Tensor = packed.kind.__tensor_unflatten__(parts, packed.context, packed.shape, packed.stride)
            return whole
        if isinstance(packed, Tensor):
            return packed
        assert packed.storage.device is not None
        memory = packed.storage.device.untyped_storage()
        empty = torch.empty(0, dtype=packed.dtype, device=self.offload.device)
        return empty.set_(memory, packed.offset, packed.shape, packed.stride)  # type: ignore[call-overload, no-any-return]

    def _begin_backward(self) -> None:
        """Wait for this layer's tensors, and start copying those of the layer before it."""
        self.used = True
        self.fetch()
        self.offload.wait(self.event)
        before = self.previous() if self.previous is not None else None
        if before is not None:
            before.fetch()


def rounded_up(size: int) -> int:
    unit = 1 << max(0, size.bit_length() - 4)
    return -(-size // unit) * unit


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of arguments: bare, in tuples and in dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        for each in fields(value):
            yield from tensors_in(getattr(value, each.name))
