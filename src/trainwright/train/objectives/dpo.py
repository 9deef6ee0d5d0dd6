"""Direct preference optimization (arXiv 2305.18290): raise the likelihood of the chosen answer over the rejected one,
relative to the model that training began with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.data.chat_samples import PairSamples
from trainwright.train.data.loader import Options, Samples
from trainwright.train.data.named import open_samples
from trainwright.train.flops import preference_flops, trained_shape
from trainwright.train.lora import adapters_off
from trainwright.train.loss import chunked_cross_entropy
from trainwright.train.models import model_class
from trainwright.train.models.decoder import ForwardInputs
from trainwright.train.models.shape import ModelShape
from trainwright.train.objectives.causal_lm import CausalLM
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.config import TrainConfig
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine


def row_log_likelihoods(x: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, cap: float = 0.0) -> Tensor:
    """The log-likelihood of the targets of each row, [rows]."""
    rows = zip(x, targets, strict=True)
    return -torch.stack([chunked_cross_entropy(row, weight, t, scale, cap=cap) for row, t in rows])


class PolicyAndReference(nn.Module):
    """The model that is trained, and the one it began as: a frozen copy, or with LoRA itself without adapters."""

    def __init__(self, shape: ModelShape, beta: float, copies: bool) -> None:
        super().__init__()
        self.shape, self.first, self.last, self.beta = shape, True, True, beta
        self.policy = model_class(shape)(shape)
        self.policy.loss = row_log_likelihoods
        self.reference = model_class(shape)(shape) if copies else None
        if self.reference is not None:
            self.reference.loss = row_log_likelihoods
            self.reference.requires_grad_(False)
        self.right: list[Tensor] = []  # of each evaluated batch: which pairs are ranked correctly

    def layers(self) -> list[Any]:
        return [*self.policy.layers(), *(self.reference.layers() if self.reference is not None else ())]

    def forward(self, tokens: Tensor, inputs: ForwardInputs) -> Tensor:
        """Rows of chosen and rejected answers in turn, to the summed loss times the scale."""
        plain = replace(inputs, scale=torch.ones((), device=tokens.device))
        with torch.no_grad(), adapters_off(self.policy) if self.reference is None else nullcontext():
            start = (self.policy if self.reference is None else self.reference)(tokens, plain)
        gain = self.beta * (self.policy(tokens, plain) - start)
        margin = gain[0::2] - gain[1::2]
        assert inputs.targets is not None
        assert inputs.scale is not None
        counts = (inputs.targets[0::2] != IGNORED).any(1)
        if not torch.is_grad_enabled():
            self.right.append(torch.stack([((margin > 0) & counts).sum(), counts.sum()]))
        return -(F.logsigmoid(margin) * counts).sum() * inputs.scale


class DirectPreference(CausalLM):
    kinds = ("decoder",)
    samples_are = "pairs"

    def __init__(self, shape: ModelShape, settings: TrainConfig | None = None) -> None:
        super().__init__(shape, settings)
        self.beta = settings.dpo_beta if settings else 0.1
        if settings and not settings.base:
            raise UserError("DPO has no model to begin with and to stay near to", fix="--base FOLDER")

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Samples:
        whole = replace(options, sequence=2 * options.sequence)  # a sample is a pair of rows
        return open_samples(names, whole, cache, self.shape.vocab, held, PairSamples)

    @property
    def tokens_per_sample(self) -> int:
        return 2 * super().tokens_per_sample

    def flops_per_token(self) -> float:
        return preference_flops(trained_shape(self.shape), super().tokens_per_sample, self.lora_rank)

    def build(self, layers: Iterable[int] | None, first: bool, last: bool) -> nn.Module:
        return PolicyAndReference(self.shape, self.beta, copies=not self.lora_rank)

    def initial_value(self, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        return super().initial_value(self.base_name(name), size, seed, device)

    def base_name(self, name: str) -> str:
        return name.removeprefix("reference.").removeprefix("policy.")

    def count(self, batch: Batch) -> Tensor:
        """Pairs, not tokens."""
        return (batch.targets[0::2] != IGNORED).any(1).sum()

    def inputs(self, batch: Batch, layout: Layout, scale: Tensor) -> tuple[Tensor, ForwardInputs]:
        return super().inputs(replace(batch, mixed_rows=None), layout, scale)

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        """How often the chosen answer gained more than the rejected one, over the batches just evaluated."""
        model: Any = engine.runner.stages[0]
        right = torch.stack(model.right).sum(0)
        model.right.clear()
        if engine.plan.world > 1:
            dist.all_reduce(right)
        return {"accuracy": float(right[0] / right[1].clamp(min=1))}


OBJECTIVE = DirectPreference
