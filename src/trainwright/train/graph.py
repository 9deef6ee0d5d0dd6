"""Records forward and backward of a step as one CUDA graph and replays it: where kernels are short, launching thousands
of them one by one takes the host longer than the GPU needs to run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

WARM = 3  # steps before the recording: kernels are compiled and chosen in them
Losses = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    batch: Any  # on the device, where the graph reads it
    losses: Losses
    grads: dict[str, Tensor]
    staging: Staging


class Staging:
    """Copies a batch to the device on a stream of its own, so that this happens while the step before still runs."""

    def __init__(self, batch: Any) -> None:
        self.buffers = [torch.empty_like(tensor) for tensor in _tensors(batch)]
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.free = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.free.record()

    def __call__(self, source: Any, target: Any) -> None:
        main = torch.cuda.current_stream()
        self.stream.wait_event(self.free)
        with torch.cuda.stream(self.stream):
            for buffer, tensor in zip(self.buffers, _tensors(source), strict=True):
                buffer.copy_(tensor, non_blocking=True)
        main.wait_stream(self.stream)
        for tensor, buffer in zip(_tensors(target), self.buffers, strict=True):
            tensor.copy_(buffer)
        self.free.record(main)


class StepGraph:
    """`step` takes one micro-batch on the device and leaves gradients; all its work must be on the device."""

    def __init__(self, step: Callable[[list[Any]], Losses], params: dict[str, nn.Parameter]) -> None:
        self.step, self.params = step, params
        self.seen: dict[Any, int] = {}
        self.recordings: dict[Any, Recording] = {}

    def __call__(self, batch: Any, device: torch.device) -> Losses:
        key = _shapes(batch)
        if key in self.recordings:
            return self._replay(self.recordings[key], batch)
        self.seen[key] = self.seen.get(key, 0) + 1
        moved = batch.to(device)
        if self.seen[key] <= WARM or self.recordings:  # other shapes are rare: a last batch
            return self.step([moved])
        self.recordings[key] = self._record(moved)
        return self._replay(self.recordings[key], batch)

    def _record(self, batch: Any) -> Recording:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # the graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        # Other threads (the loader pins memory) go on meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = self.step([batch])
        grads = {name: param.grad for name, param in self.params.items() if param.grad is not None}
        return Recording(graph, batch, losses, grads, Staging(batch))

    def _replay(self, recording: Recording, batch: Any) -> Losses:
        recording.staging(batch, recording.batch)
        recording.graph.replay()
        for name, grad in recording.grads.items():
            self.params[name].grad = grad
        loss, tokens = recording.losses
        return loss.clone(), tokens.clone()  # they are read later, when the next replay may have begun


def _tensors(batch: Any) -> list[Tensor]:
    values = (getattr(batch, field.name) for field in fields(batch))
    return [value for value in values if isinstance(value, Tensor)]


def _shapes(batch: Any) -> tuple[Any, ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in _tensors(batch))
