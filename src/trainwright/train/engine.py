"""The engine: one training step of one model under any plan. It hides the plan from the loop: losses, gradient norms
and token counts are global, and a checkpoint of one plan loads into every other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.train.build import build
from trainwright.train.graph import StepGraph
from trainwright.train.lora import LoRAOptions
from trainwright.train.models.shape import ModelShape
from trainwright.train.objectives.base import Objective
from trainwright.train.objectives.causal_lm import CausalLM
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel.expert import ExpertBalance
from trainwright.train.parallel.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to compute; none of these changes the model."""

    precision: str = "fp32"  # fp32 | bf16 (fp32 master weights) | fp8 (bf16 with float8 products)
    float8: str = "tensorwise"  # of fp8: tensorwise | rowwise | blockwise | mxfp8
    float8_gather: bool = False  # tensorwise: FSDP gathers float8 weights
    compile: bool = False
    recompute: str = "none"  # none | selective | full
    async_tp: bool = False  # overlap the collectives of tensor parallelism with products
    offload_activations: float = 0.0  # share of the layers whose saved activations wait in host memory
    context: str = "gather"  # how context ranks meet the keys: gather | all-to-all | ring
    pipeline_schedule: str = "1f1b"  # 1f1b | zero-bubble
    attention: str = "auto"  # auto | cudnn | flash | efficient | math
    seed: int = 0
    max_norm: float = 1.0  # 0: no clipping
    optimizer: AdamWOptions = field(default_factory=AdamWOptions)
    offload_optimizer: bool = False
    deterministic: bool = False
    lora: LoRAOptions | None = None  # train adapters only


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step gave, over all ranks. Tensors, so that the CPU need not wait for the GPU; `float()` reads them."""

    loss: Tensor  # mean over every token of the global batch that is not ignored
    grad_norm: Tensor  # before clipping
    tokens: Tensor  # how many tokens that mean is over


class Engine:
    """`train_step`, or `forward_backward` and then `optimizer_step` (or `discard`, to skip the update)."""

    def __init__(
        self,
        shape: ModelShape,
        plan: ParallelPlan,
        options: EngineOptions,
        device: torch.device | str,
        objective: Objective | None = None,
    ) -> None:
        self.shape, self.plan, self.options = shape, plan, options
        self.objective = objective or CausalLM(shape)
        self.device = torch.device(device)
        built = build(self.objective, plan, options, self.device)
        self.layout, self.runner, self.notes = built.layout, built.runner, built.notes
        self.params, self.frozen = built.params, built.frozen
        self.optimizer, self.gradients, self.offload = built.optimizer, built.gradients, built.offload
        self.gathered = built.gathered
        self.balance = ExpertBalance(shape, plan, self.runner.stages)
        self.sums: dict[str, Tensor] = {}  # fp32 gradient sums of several bf16 micro-batches
        self.collected: tuple[dict[str, Tensor], Tensor] | None = None  # gradients of all ranks, and their norm
        self.loss = torch.zeros((), device=self.device)  # of the last forward and backward pass
        self.objective.attach(self)
        alone = self.device.type == "cuda" and plan.world == 1 and options.compile and self.offload is None
        self.graph = StepGraph(self._gradients, self.params) if alone and self.objective.replayable else None
        if self.graph:
            self.notes.append("forward and backward are replayed as one CUDA graph")

    @property
    def data_rank(self) -> int:
        """Which slice of the global batch this rank reads: 0 to `data_world` - 1."""
        return self.layout.data_rank

    @property
    def data_world(self) -> int:
        return self.plan.data

    def description(self) -> list[str]:
        """Lines for the log: what runs, and how."""
        return self.notes

    def train_step(self, microbatches: list[Any], lr: float) -> StepOutput:
        loss, tokens = self.forward_backward(microbatches)
        return StepOutput(loss, self.optimizer_step(lr), tokens)

    def forward_backward(self, microbatches: list[Any]) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss over the global batch, and (that loss, its tokens)."""
        self.objective.begin_step(self)
        self.gathered.update()
        if self.graph and len(microbatches) == 1:
            self.loss, tokens = self.graph(microbatches[0], self.device)
        else:
            self.loss, tokens = self._gradients([batch.to(self.device) for batch in microbatches])
        return self.loss, tokens

    def _gradients(self, moved: list[Any]) -> tuple[Tensor, Tensor]:
        tokens = self._global_tokens(moved).clamp(min=1)
        divisor = self.plan.data * self.plan.cp  # FSDP averages over these ranks, the loss is a sum
        inputs = [self.objective.inputs(batch, self.layout, divisor / tokens) for batch in moved]
        if self.shape.experts:
            self.balance.start(divisor, sum(batch.tokens.shape[0] for batch in moved))
        many = len(moved) > 1 and not self.layout.sharded
        losses = self.runner.train(inputs, self._accumulate_fp32 if many else None)
        return self._global_sum(losses) / divisor, tokens

    def gradient_norm(self) -> Tensor:
        """The norm of the whole gradient, before clipping, for a guard that checks it before the update."""
        if self.collected is None:
            grads = self.gradients.collect(self.params, self.sums)
            self.objective.adjust(grads, self)
            self.collected = grads, self.gradients.norm(grads)
        return self.collected[1]

    def optimizer_step(self, lr: float) -> Tensor:
        """Clip by the global norm and update; returns the norm before clipping. Where loss or norm is not finite, the
        weights stay as they are: the device decides that, so that the host need not wait for the loss."""
        norm = self.gradient_norm()
        assert self.collected is not None
        grads = self.collected[0]
        limit = self.options.max_norm
        clip = (limit / (norm + 1e-6)).clamp(max=1.0) if limit else torch.ones_like(norm)
        clip = torch.where(torch.isfinite(norm) & torch.isfinite(self.loss), clip, torch.nan)
        self.optimizer.step(lr, grads, clip)
        self.balance.update()
        self.discard()
        self.objective.after_update(self)
        return norm

    def discard(self) -> None:
        """Drop the gradients without an update."""
        self.sums.clear()
        self.balance.discard()
        self.collected = None
        for param in self.params.values():
            param.grad = None

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Any]) -> float:
        """Mean loss over the tokens of `batches` on all data ranks; every rank gives the same number of batches."""
        total, count = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        one = torch.ones((), device=self.device)
        self.gathered.update()
        for batch in batches:
            moved = batch.to(self.device)
            count += self._global_tokens([moved])
            total += self._global_sum(self.runner.evaluate(self.objective.inputs(moved, self.layout, one)))
        return float(total / count.clamp(min=1))

    def state_dict(self) -> dict:
        """What a checkpoint keeps, for torch.distributed.checkpoint: fp32 weights and optimizer state, named as in the
        whole model, as distributed tensors where they are sharded."""
        state: dict = {"model": {}, "exp_avg": {}, "exp_avg_sq": {}, "step": torch.tensor(self.optimizer.steps)}
        for kind, name, tensor in self.optimizer.state():
            state[kind][name] = tensor
        state["model"].update(self.balance.biases())
        own = self.objective.state()
        return {**state, "objective": own} if own else state

    @torch.no_grad()
    def load_state_dict(self, state: dict) -> None:
        """Restore a state that was loaded into `state_dict()` of this engine."""
        self.optimizer.steps = int(state["step"])
        for kind in ("model", "exp_avg", "exp_avg_sq"):
            for name, value in state[kind].items():
                if name in self.params:
                    self.optimizer.load(kind, name, value)
        self.balance.load(state["model"])
        self.objective.loaded()

    def _global_tokens(self, microbatches: list[Any]) -> Tensor:
        count = torch.stack([self.objective.count(batch) for batch in microbatches]).sum()
        if self.plan.world > 1:
            dist.all_reduce(count)
        return count // (self.plan.world // self.plan.data)

    def _global_sum(self, losses: list[Tensor]) -> Tensor:
        """Losses exist on the last stage, once per tensor-parallel peer."""
        total = torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)
        total = total.detach() / self.plan.tp
        if self.plan.world > 1:
            dist.all_reduce(total)
        return total

    def _accumulate_fp32(self) -> None:
        """Add the bf16 gradients of one micro-batch to fp32 sums, so that small contributions are not rounded away."""
        for name, param in self.params.items():
            if param.dtype != torch.float32 and param.grad is not None:
                grad = param.grad.float()
                self.sums[name] = self.sums[name].add_(grad) if name in self.sums else grad
                param.grad = None
