"""Builds an engine: stages on the meta device, parallelism applied to them from outside, memory allocated only for this
rank's part, and initial values written tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainwright.train.adamw8bit import AdamW8bit
from trainwright.train.backend import choose_backend
from trainwright.train.float8.gather import GatheredWeights
from trainwright.train.float8.layers import apply_float8, is_float8
from trainwright.train.lora import apply_lora, initial_adapter, is_adapter
from trainwright.train.models.attention import ROW_STEPS
from trainwright.train.muon import Muon
from trainwright.train.objectives.base import Objective
from trainwright.train.optimizer import AdamW, local, part_of
from trainwright.train.parallel.activation import apply_checkpointing
from trainwright.train.parallel.async_tensor import enable_async
from trainwright.train.parallel.context import apply_context
from trainwright.train.parallel.data import apply_data
from trainwright.train.parallel.expert import apply_experts
from trainwright.train.parallel.gradients import Gradients
from trainwright.train.parallel.layout import Layout, layout
from trainwright.train.parallel.offload import ActivationOffload, apply_offload
from trainwright.train.parallel.pipeline import Pipeline, SingleStage
from trainwright.train.parallel.pipeline_schedule import ZERO_BUBBLE, stage_layers
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.parallel.tensor import apply_tensor
from trainwright.train.parallel.tensor_encoder import apply_tensor_encoder
from trainwright.train.parallel.tensor_seq2seq import apply_tensor_seq2seq
from trainwright.train.parallel.tensor_vision import apply_tensor_vision
from trainwright.train.products import choose_products

if TYPE_CHECKING:
    from trainwright.train.engine import EngineOptions

TENSOR: dict[str, Callable[[Any, Layout], None]] = {
    "decoder": apply_tensor,
    "encoder": apply_tensor_encoder,
    "encoder-decoder": apply_tensor_seq2seq,
    "vision": apply_tensor_vision,
}
OPTIMIZERS: dict[str, type[AdamW]] = {"adamw": AdamW, "adamw8bit": AdamW8bit, "muon": Muon}


@dataclass(frozen=True)
class Built:
    layout: Layout
    runner: Pipeline | SingleStage
    params: dict[str, nn.Parameter]  # those that are trained
    frozen: dict[str, nn.Parameter]
    optimizer: AdamW
    gradients: Gradients
    gathered: GatheredWeights
    offload: ActivationOffload | None
    notes: list[str]


def build(objective: Objective, plan: ParallelPlan, options: EngineOptions, device: torch.device) -> Built:
    """Everything of an engine except the step itself."""
    shape = objective.shape
    notes = choose_backend(options, device)
    here = layout(plan, device, options.context)
    dtype = torch.float32 if options.precision == "fp32" or here.sharded else torch.bfloat16
    stages = [_stage(objective, here, options, dtype, chunk, device, notes) for chunk in range(plan.virtual_stages)]
    offload = ActivationOffload(device) if options.offload_activations else None
    if offload is not None:
        for stage in stages:
            apply_offload(stage, options.offload_activations, offload)
    everything = {name: param for stage in stages for name, param in stage.named_parameters()}
    params = {name: param for name, param in everything.items() if param.requires_grad}
    frozen = {name: param for name, param in everything.items() if not param.requires_grad}
    optimizer = OPTIMIZERS[options.optimizer.kind](params, options.optimizer, options.offload_optimizer)
    for name, param in everything.items():
        initial = initial_adapter if is_adapter(name) else objective.initial_value
        value = part_of(initial(name, param.shape, options.seed, device), param)
        if name in params:
            optimizer.write(name, value)
        else:
            local(param).copy_(value)
    wire = torch.float32 if options.precision == "fp32" else torch.bfloat16
    zero_bubble = options.pipeline_schedule == ZERO_BUBBLE
    runner = SingleStage(stages[0], here) if plan.pp == 1 else Pipeline(stages, here, wire, zero_bubble)
    gradients = Gradients(here, params, shape.tied or shape.kind == "encoder")  # which has one table for both
    if options.lora is not None:
        count, whole = (sum(p.numel() for p in group.values()) for group in (params, everything))
        notes.append(f"LoRA: rank {options.lora.rank}, {count:,} of {whole:,} parameters are trained")
    if options.optimizer.kind != "adamw":
        notes.append(f"optimizer: {optimizer.description()}")
    notes.append(f"plan: {plan} on {plan.world} rank{'s' if plan.world > 1 else ''}{_methods(plan, options)}")
    if options.precision == "fp8" and not any(is_float8(module) for stage in stages for module in stage.modules()):
        notes[:] = [note.replace("precision: fp8", "precision: bf16 (asked for: fp8)") for note in notes]
    gathers = options.float8_gather and here.plan.shard * here.plan.cp > 1
    gathered = GatheredWeights(stages if gathers else [], here)
    if gathers:
        notes.append(f"FSDP gathers {len(gathered.shards)} weights in float8")
    return Built(here, runner, params, frozen, optimizer, gradients, gathered, offload, notes)


def _methods(plan: ParallelPlan, options: EngineOptions) -> str:
    """How the ranks of a context and of a pipeline work together, for the log."""
    context = f", context by {options.context}" if plan.cp > 1 else ""
    interleaved = "interleaved " if plan.virtual_stages > 1 else ""
    return context + (f", pipeline schedule {interleaved}{options.pipeline_schedule}" if plan.pp > 1 else "")


def _stage(
    objective: Objective,
    here: Layout,
    options: EngineOptions,
    dtype: torch.dtype,
    chunk: int,
    device: torch.device,
    notes: list[str],
) -> Any:
    """One pipeline stage of this rank, allocated but not initialised; lines for the log go to `notes`."""
    plan = here.plan
    number, stages = chunk * plan.pp + here.pipeline_rank, plan.pp * plan.virtual_stages
    with torch.device("meta"):
        layers = stage_layers(number, stages, objective.shape.layers)
        model: Any = objective.build(layers, number == 0, number == stages - 1)
        for param in model.parameters():
            param.data = param.data.to(dtype)  # buffers stay fp32
        if options.lora is not None:
            apply_lora(model, options.lora)
    if objective.shape.experts:
        apply_experts(model, here)
    if plan.tp > 1:
        TENSOR[objective.shape.kind](model, here)
    if plan.cp > 1:
        apply_context(model, here)
    if options.precision == "fp8":
        note = apply_float8(model, options.float8)
        notes += [] if note in notes else [note]  # the stages of one rank are alike
    elif _products_chosen(plan, options, device):
        notes.append(choose_products(model))  # without pipelines, so of the only stage
    apply_checkpointing(model, options.recompute)
    if options.async_tp:
        note = enable_async(here, device)
        notes += [] if note in notes else [note]
    if options.compile:
        # Training, evaluation and each kind of attention mask have their own graph of a block.
        from torch._dynamo import config as dynamo

        dynamo.recompile_limit = max(dynamo.recompile_limit, 4 * (ROW_STEPS + 1))
        for block in model.layers():
            # The forward alone, so that FSDP's hooks stay outside of the compiled code.
            block.forward = torch.compile(block.forward, dynamic=False)
    if here.sharded:
        apply_data(model, here, options.precision)
    model.to_empty(device=device)
    for buffer in model.buffers():
        buffer.zero_()
    return model


def _products_chosen(plan: ParallelPlan, options: EngineOptions, device: torch.device) -> bool:
    """Whether the algorithm of each product is chosen by its speed: not where a run must be the same bit by bit."""
    fast = options.precision == "bf16" and options.compile and not options.deterministic
    return fast and device.type == "cuda" and plan.tp == 1 and plan.pp == 1
