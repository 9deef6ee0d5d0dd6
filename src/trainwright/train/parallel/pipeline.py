"""Pipeline parallelism: runs this rank's list of actions (pipeline_schedule.py) and exchanges activations and gradients
with its neighbours. Each direction has its own process group, because transfers within one group are ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.train.models.decoder import Decoder, ForwardInputs
from trainwright.train.parallel.data import expect_backward, reduce_gradients
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.pipeline_schedule import schedule
from trainwright.train.parallel.split_backward import Product, backward_input


class Pipeline:
    """This rank's stages and its links to the previous and the next rank."""

    def __init__(self, stages: list[Decoder], layout: Layout, dtype: torch.dtype, zero_bubble: bool = False) -> None:
        self.stages, self.layout, self.dtype, self.zero_bubble = stages, layout, dtype, zero_bubble
        self.rank, self.ranks = layout.pipeline_rank, layout.plan.pp
        self.column: list[int] = layout.axis("pipeline").mesh.tolist()
        self.groups: dict[tuple[bool, bool], dist.ProcessGroup] = {}
        for wraps in (False, True) if len(stages) > 1 else (False,):
            for forward in (True, False):
                self.groups[wraps, forward] = layout.subgroup(lambda ranks: ranks)

    def train(self, microbatches: list[tuple[Tensor, ForwardInputs]], after: Callable[[], None] | None) -> list[Tensor]:
        """Forward and backward of all micro-batches; the losses, on the rank that has the last stage."""
        run = _PipelineStep(self, microbatches)
        for action in schedule(self.rank, self.ranks, len(self.stages), len(microbatches), self.zero_bubble):
            getattr(run, action.kind)(action.chunk, action.microbatch)
            if after and action.kind != "forward":
                after()
        run.finish()
        return run.losses

    def evaluate(self, inputs: tuple[Tensor, ForwardInputs]) -> list[Tensor]:
        run = _PipelineStep(self, [inputs])
        for chunk in range(len(self.stages)):
            run.forward(chunk, 0)
        run.finish()
        return run.losses


class _PipelineStep:
    """One pass over all micro-batches: received activations, pending backwards and sends in flight."""

    def __init__(self, pipeline: Pipeline, microbatches: list[tuple[Tensor, ForwardInputs]]) -> None:
        self.pipeline, self.microbatches = pipeline, microbatches
        self.waiting: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.products: dict[tuple[int, int], list[Product]] = {}  # whose weight gradients are put off
        self.sending: list[tuple[Any, Tensor]] = []
        self.losses: list[Tensor] = []
        self.left = [len(microbatches)] * len(pipeline.stages)

    def forward(self, chunk: int, microbatch: int) -> None:
        stage = self.pipeline.stages[chunk]
        tokens, inputs = self.microbatches[microbatch]
        x = tokens if stage.first else self._receive(chunk, microbatch, True).requires_grad_(torch.is_grad_enabled())
        y = stage(x, inputs)
        if stage.last:
            self.losses.append(y.detach())
        else:
            self._send(y.detach(), chunk, microbatch, True)
        if torch.is_grad_enabled():
            self.waiting[chunk, microbatch] = x, y

    def backward(self, chunk: int, microbatch: int) -> None:
        stage = self.pipeline.stages[chunk]
        self.left[chunk] -= 1
        last = self.left[chunk] == 0 and not self.pipeline.zero_bubble
        expect_backward(stage, self.pipeline.layout, last)
        x, y = self.waiting.pop((chunk, microbatch))
        grad = None if stage.last else self._receive(chunk, microbatch, False)
        if self.pipeline.zero_bubble and x.requires_grad:
            self.products[chunk, microbatch] = backward_input(y, grad, x)
        else:
            torch.autograd.backward([y], None if grad is None else [grad])
        if x.grad is not None:
            self._send(x.grad, chunk, microbatch, False)

    def weights(self, chunk: int, microbatch: int) -> None:
        """The weight gradients that a backward left out; after the last of a stage, its ranks add theirs up."""
        for product in self.products.pop((chunk, microbatch), []):
            product.complete()
        if self.left[chunk] == 0 and not any(waiting == chunk for waiting, _ in self.products):
            reduce_gradients(self.pipeline.stages[chunk])

    def finish(self) -> None:
        for work, _ in self.sending:
            work.wait()

    def _edge(self, chunk: int, microbatch: int, forward: bool, incoming: bool) -> tuple[int, dist.ProcessGroup, int]:
        """(peer, group, tag) of a transfer; the tag names the stage boundary and the micro-batch."""
        rank, ranks = self.pipeline.rank, self.pipeline.ranks
        before = forward == incoming  # the peer is the previous rank
        peer = self.pipeline.column[(rank - 1) % ranks if before else (rank + 1) % ranks]
        boundary = chunk * ranks + rank - (1 if before else 0)
        wraps = boundary % ranks == ranks - 1  # from the last rank to the first, for the next chunk
        return peer, self.pipeline.groups[wraps, forward], boundary * len(self.microbatches) + microbatch

    def _send(self, tensor: Tensor, chunk: int, microbatch: int, forward: bool) -> None:
        peer, group, tag = self._edge(chunk, microbatch, forward, incoming=False)
        tensor = tensor.contiguous()
        self.sending.append((dist.isend(tensor, peer, group=group, tag=tag), tensor))

    def _receive(self, chunk: int, microbatch: int, forward: bool) -> Tensor:
        tokens, _ = self.microbatches[microbatch]
        plan = self.pipeline.layout.plan
        size = (tokens.shape[0], tokens.shape[1] // plan.tp, self.pipeline.stages[0].shape.hidden)
        buffer = torch.empty(size, dtype=self.pipeline.dtype, device=tokens.device)
        peer, group, tag = self._edge(chunk, microbatch, forward, incoming=True)
        work: Any = dist.irecv(buffer, peer, group=group, tag=tag)
        work.wait()
        return buffer


class SingleStage:
    """The same interface for a rank that holds all layers."""

    def __init__(self, model: Decoder, layout: Layout) -> None:
        self.stages, self.layout = [model], layout

    def train(self, microbatches: list[tuple[Tensor, ForwardInputs]], after: Callable[[], None] | None) -> list[Tensor]:
        model, losses = self.stages[0], []
        for at, (tokens, inputs) in enumerate(microbatches, 1):
            expect_backward(model, self.layout, last=at == len(microbatches))
            loss = model(tokens, inputs)
            torch.autograd.backward([loss])
            losses.append(loss.detach())
            if after:
                after()
        return losses

    def evaluate(self, inputs: tuple[Tensor, ForwardInputs]) -> list[Tensor]:
        return [self.stages[0](*inputs)]
