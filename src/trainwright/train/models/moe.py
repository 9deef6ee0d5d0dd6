"""Mixture of experts without dropped tokens: a router chooses the experts of every token, tokens are sorted by expert,
and one grouped product serves all experts. Offsets stay on the device, so that nothing waits for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.models.mlp import MLP, gated
from trainwright.train.models.shape import ModelShape

Routed = tuple[Tensor, Tensor, Tensor]  # the hidden states, the summed balance loss, tokens per expert


class Router(nn.Module):
    """Scores of all experts for every token, and the experts that are chosen."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.hidden))
        self.linear_bias = nn.Parameter(torch.empty(shape.experts)) if shape.router_linear_bias else None
        self.bias: Tensor | None
        self.register_buffer("bias", torch.zeros(shape.experts) if shape.router_bias else None)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(scores of all experts [b, s, experts], the chosen experts [b, s, k] and their weights) in fp32."""
        shape = self.shape
        logits = F.linear(x, *self.local_weights()).float()
        scores = logits.sigmoid() if shape.router == "sigmoid" else logits.softmax(dim=-1)
        chosen = self.choice(scores.detach()).topk(shape.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if shape.router_normalise:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return scores, chosen, weights * shape.router_scale

    def local_weights(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.linear_bias

    def choice(self, scores: Tensor) -> Tensor:
        """What the experts are chosen by: the scores with the bias, in a token's best groups only."""
        choice = scores if self.bias is None else scores + self.bias
        groups, best = self.shape.router_groups, self.shape.router_top_groups
        if groups <= 1 or best >= groups:
            return choice
        grouped = choice.view(*choice.shape[:-1], groups, -1)
        # DeepSeek V3 ranks a group by its two best experts, V2 by its best one.
        ranks = grouped.topk(2 if self.shape.router == "sigmoid" else 1, dim=-1).values.sum(dim=-1)
        kept = torch.zeros_like(ranks, dtype=torch.bool).scatter(-1, ranks.topk(best, dim=-1).indices, True)
        return grouped.masked_fill(~kept[..., None], -torch.inf).flatten(-2)


class Experts(nn.Module):
    """The MLPs of all experts. `gate_up` holds gate and up of an expert in one matrix of one product."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(shape.experts, 2, shape.ffn, shape.hidden))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.ffn))
        biased = shape.mlp_bias
        self.gate_up_bias = nn.Parameter(torch.empty(shape.experts, 2, shape.ffn)) if biased else None
        self.down_bias = nn.Parameter(torch.empty(shape.experts, shape.hidden)) if biased else None
        self.combine = gated(shape.activation)

    def forward(self, rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
        """`weights` times each row's output; `counts` rows belong to each expert, in order."""
        gate_up, down = self.local_weights()
        gate_up_bias, down_bias = self.local_biases()
        ends = counts.cumsum(0, dtype=torch.int32)
        both = grouped_product(rows, gate_up.flatten(1, 2), ends)
        if gate_up_bias is not None:
            both = both + by_row(gate_up_bias.flatten(1), counts, len(rows))
        gate, up = both.chunk(2, dim=-1)
        # The product with `down` is linear: weighing its input needs no copy of its output for the backward pass.
        inner = (self.combine(gate, up) * weights).to(rows.dtype)
        y = grouped_product(inner, down, ends)
        return y if down_bias is None else y + (by_row(down_bias, counts, len(rows)) * weights).to(y.dtype)

    def local_weights(self) -> tuple[Tensor, Tensor]:
        return self.gate_up, self.down

    def local_biases(self) -> tuple[Tensor | None, Tensor | None]:
        return self.gate_up_bias, self.down_bias


class MoE(nn.Module):
    """Router, experts, and the shared expert that all tokens visit. Parallelism replaces `run`, `total` and `merge`."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.router = Router(shape)
        self.experts = Experts(shape)
        self.shared = MLP(replace(shape, ffn=shape.shared_ffn)) if shape.shared_ffn else None
        self.run: Callable[[Experts, Tensor, Tensor, Tensor], Tensor] = run_here
        self.total: Callable[[Tensor], Tensor] = _same  # counts over all ranks that share a sequence
        self.merge: Callable[[Tensor], Tensor] = _same  # this rank's part of the output
        self.sequence_ranks, self.copies = 1, 1  # ranks that share a sequence, and that see the same tokens

    def forward(self, x: Tensor) -> Routed:
        scores, chosen, weights = self.router(x)
        counts = per_sequence_counts(chosen, self.shape.experts)
        order, inverse = sort_by_expert(chosen)
        k = self.shape.experts_per_token
        rows = spread(x.flatten(0, 1), order, inverse, k)
        y = self.run(self.experts, rows, spread(weights.reshape(-1, 1), order, inverse, 1), counts.sum(0))
        y = self.merge(collect(y, order, inverse, k).view_as(x))
        if self.shared is not None:
            y = y + self.shared(x)
        return y, self.balance(scores, self.total(counts)), counts.sum(0)

    def balance(self, scores: Tensor, counts: Tensor) -> Tensor:
        """The auxiliary loss of each sequence, summed: experts x sum of (share of tokens x mean score) over experts.
        Shares sum to the experts of a token (Switch, Mixtral, Qwen), in DeepSeek V3 to 1."""
        factor = self.shape.experts / self.copies
        if self.shape.router == "sigmoid":
            scores = scores / scores.sum(dim=-1, keepdim=True)
            factor /= self.shape.experts_per_token
        length = scores.shape[1] * self.sequence_ranks
        shares = counts.to(scores.dtype) / length
        return (shares * scores.sum(dim=1) / length).sum() * factor


def _same(x: Tensor) -> Tensor:
    return x


def run_here(experts: Experts, rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """All experts are on this rank."""
    return experts(rows, weights, counts)


def per_sequence_counts(chosen: Tensor, experts: int) -> Tensor:
    """How many tokens of each sequence go to each expert: [b, experts]."""
    numbers = torch.arange(experts, device=chosen.device)
    return (chosen.flatten(1)[..., None] == numbers).sum(dim=1)


def sort_by_expert(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The order of all (token, choice) pairs by expert, and its inverse."""
    order = chosen.flatten().argsort(stable=True)
    places = torch.arange(len(order), device=order.device)
    return order, torch.empty_like(order).scatter_(0, order, places)


def spread(x: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
    """Each row of x, k times, in the given order."""
    return _Spread.apply(x, order, inverse, k)  # type: ignore[no-untyped-call]


def collect(rows: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
    """The sum of the k copies of each row, out of that order."""
    return _Collect.apply(rows, order, inverse, k)  # type: ignore[no-untyped-call]


class _Spread(torch.autograd.Function):
    """Both directions read rows by index: the backward of plain indexing would add with atomics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(order, inverse)
        ctx.k = k
        return x[order // k]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        _, inverse = ctx.saved_tensors
        return grad[inverse].view(-1, ctx.k, grad.shape[1]).sum(dim=1), None, None, None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(order, inverse)
        ctx.k = k
        return rows[inverse].view(-1, k, rows.shape[1]).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        order, _ = ctx.saved_tensors
        return grad[order // ctx.k], None, None, None


def by_row(biases: Tensor, counts: Tensor, rows: int) -> Tensor:
    """The bias of each row's expert, for rows in the order of the experts."""
    return biases.repeat_interleave(counts, dim=0, output_size=rows)


def grouped_product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """rows[end of group i - 1 : end of group i] @ weights[i]^T for every group i."""
    aligned = all(size % 8 == 0 for size in weights.shape[1:])
    if aligned and rows.dtype == torch.bfloat16 and has_grouped_kernel(rows.device):
        return torch._grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    parts = rows.tensor_split(ends[:-1].tolist())
    return torch.cat([part @ weight.t() for part, weight in zip(parts, weights.unbind(0), strict=True)])


def has_grouped_kernel(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


class _AddLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        ctx.save_for_backward(loss)
        return x.clone()  # FSDP hooks a stage's output, which must not be a view

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (loss,) = ctx.saved_tensors
        return grad, torch.full_like(loss, ctx.weight), None


def add_loss(x: Tensor, loss: Tensor, weight: float) -> Tensor:
    """x, with `weight` x `loss` added to whatever loss x leads to: also from a pipeline stage without the output."""
    return _AddLoss.apply(x, loss, weight)  # type: ignore[no-untyped-call]
