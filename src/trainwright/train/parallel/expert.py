"""Expert parallelism: the experts of a layer are spread over `ep` data ranks, and tokens travel to their experts and
back by all-to-all. Each expert's MLP may also be split by tensor parallelism. And the balance of the experts' load."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from trainwright.train.models.decoder import Decoder
from trainwright.train.models.moe import Experts, MoE, Router, spread
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.collectives import exchange, reduce_scatter
from trainwright.train.parallel.layout import Layout
from trainwright.train.parallel.plan import ParallelPlan

BIAS_STEP = 1e-3  # DeepSeek V3 (arXiv 2412.19437), section 4.2
# The dimension of an expert's columns, which tensor parallelism splits; the last bias comes after their sum.
FEATURES = {"gate_up": 2, "down": 2, "gate_up_bias": 2, "down_bias": None}


class ExpertSlice(Experts):
    """This rank's experts, or its part of each expert."""

    def local_weights(self) -> tuple[Tensor, Tensor]:
        gate_up, down = cast(DTensor, self.gate_up), cast(DTensor, self.down)
        return gate_up.to_local(), down.to_local()

    def local_biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Every tensor-parallel rank adds its share of the last bias to a sum over these ranks."""
        if self.gate_up_bias is None:
            return None, None
        gate_up, down = cast(DTensor, self.gate_up_bias), cast(DTensor, self.down_bias)
        grads = [Partial() if p.is_replicate() else p for p in down.placements]
        shares = prod(n for n, p in zip(down.device_mesh.shape, down.placements, strict=True) if p.is_replicate())
        return gate_up.to_local(), down.to_local(grad_placements=grads) / shares


class RouterCopy(Router):
    """A copy on every tensor-parallel rank; each sees a part of the experts' columns, so gradients are partial sums."""

    def local_weights(self) -> tuple[Tensor, Tensor | None]:
        both = (self.weight, self.linear_bias)
        weight, bias = (p if p is None else cast(DTensor, p).to_local(grad_placements=[Partial()]) for p in both)
        assert weight is not None
        return weight, bias


def apply_experts(model: Decoder, layout: Layout) -> None:
    """Turn the experts of a Decoder on the meta device into this rank's."""
    for block in model.layers():
        if isinstance(block.mlp, MoE):
            _apply(block.mlp, layout)


def _apply(moe: MoE, layout: Layout) -> None:
    plan = layout.plan
    if plan.cp > 1:
        moe.sequence_ranks, moe.total = plan.cp, partial(_sum_over, group=layout.context_group)
    if plan.tp > 1:
        moe.copies, moe.merge = plan.tp, partial(reduce_scatter, dim=1, group=layout.tensor_group)
    if plan.ep > 1:
        moe.run = partial(run_exchanged, group=layout.expert_group)
    if plan.ep == plan.tp == 1:
        return
    moe.experts.__class__ = ExpertSlice
    for name, whole in list(moe.experts.named_parameters(recurse=False)):
        part = nn.Parameter(_slice(whole, FEATURES[name], layout), requires_grad=whole.requires_grad)
        moe.experts.register_parameter(name, part)


def _slice(param: Tensor, features: int | None, layout: Layout) -> DTensor:
    """This rank's experts, and of each its columns."""
    plan = layout.plan
    local, axes = param.detach(), []
    placements: list[Shard | Replicate] = []
    if plan.ep > 1:
        local = local.chunk(plan.ep)[layout.expert_rank]
        placements.append(Shard(0))
        axes.append("expert")
    if plan.tp > 1:
        local = local if features is None else local.chunk(plan.tp, features)[layout.tensor_rank]
        placements.append(Replicate() if features is None else Shard(features))
        axes.append("tensor")
    mesh = (layout.expert_mesh or layout.mesh)[tuple(axes)]  # type: ignore[index]
    shape, stride = param.shape, param.stride()
    return DTensor.from_local(local.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)


def _sum_over(counts: Tensor, group: Any) -> Tensor:
    total = counts.clone()
    dist.all_reduce(total, group=group)
    return total


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_exchanged(experts: Experts, rows: Tensor, weights: Tensor, counts: Tensor, *, group: Any) -> Tensor:
    """Send each row to the rank of its expert, compute there, and send it back."""
    ranks = dist.get_world_size(group)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    by_rank = arriving.view(ranks, -1)
    leaving_sizes, arriving_sizes = torch.stack([counts.view(ranks, -1).sum(1), by_rank.sum(1)]).tolist()
    rows = exchange(rows, leaving_sizes, arriving_sizes, group)
    weights = exchange(weights, leaving_sizes, arriving_sizes, group)
    # Rows arrive by rank and then by expert; the experts need them by expert.
    numbers = torch.arange(by_rank.shape[1], device=rows.device).repeat(ranks)
    order = numbers.repeat_interleave(arriving).argsort(stable=True)
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    y = experts(spread(rows, order, inverse, 1), spread(weights, order, inverse, 1), by_rank.sum(0))
    return exchange(spread(y, inverse, order, 1), arriving_sizes, leaving_sizes, group)


class ExpertBalance:
    """What keeps the load of the experts even: the weight of the auxiliary loss, and the routers' biases."""

    def __init__(self, shape: ModelShape, plan: ParallelPlan, stages: list[Any]) -> None:
        self.shape, self.plan = shape, plan
        modules = (named for stage in stages if shape.experts for named in stage.named_modules())
        # A stage is a decoder, or has some (policy and reference); a rank may have several stages of one.
        self.decoders = [(name, module) for name, module in modules if isinstance(module, Decoder)]

    def start(self, divisor: int, samples: int) -> None:
        """Before a step with that many samples per data rank; the balance loss is a mean over samples and layers."""
        layers = self.shape.layers - self.shape.dense_layers
        for _, decoder in self.decoders:
            decoder.balance_weight = divisor * self.shape.balance_loss / (layers * samples * self.plan.data)

    def routers(self, decoders: str | None = None) -> dict[str, Router]:
        """Every router by its name in the model; or only those of the decoders of that name."""
        return {
            ".".join(filter(None, (name, "blocks", layer, "mlp.router"))): block.mlp.router
            for name, decoder in self.decoders
            for layer, block in decoder.named_layers()
            if isinstance(block.mlp, MoE) and decoders in (None, name)
        }

    @torch.no_grad()
    def update(self) -> None:
        """Raise the bias of experts that got fewer tokens than the mean in this step, lower that of the others."""
        if not self.shape.router_bias:
            return
        for name in dict.fromkeys(name for name, _ in self.decoders):
            load = self.load_per_layer(name)
            for path, router in self.routers(name).items():
                own = load[int(path.split(".")[-3])]
                if router.weight.requires_grad and router.bias is not None:
                    router.bias.add_(torch.sign(own.mean() - own), alpha=BIAS_STEP)

    def load_per_layer(self, name: str = "") -> Tensor:
        """Tokens per expert of every layer of a decoder in this step, over all ranks (tensor-parallel ones count as
        often as there are)."""
        decoders = [decoder for path, decoder in self.decoders if path == name]
        device = next(decoders[0].parameters()).device
        load = torch.zeros(self.shape.layers, self.shape.experts, device=device)
        for decoder in decoders:
            for layer, counts in decoder.expert_load.items():
                load[int(layer)] = counts
        if self.plan.world > 1:
            dist.all_reduce(load)
        return load

    def discard(self) -> None:
        for _, decoder in self.decoders:
            decoder.expert_load.clear()

    def biases(self) -> dict[str, Tensor]:
        """What a checkpoint keeps beside the parameters."""
        return {f"{name}.bias": router.bias for name, router in self.routers().items() if router.bias is not None}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, bias in self.biases().items():
            bias.copy_(state[name])
