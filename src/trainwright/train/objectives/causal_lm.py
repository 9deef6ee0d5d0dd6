"""Predict the next token: pretraining of decoders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from trainwright.train.data.batch import Batch
from trainwright.train.models.attention import attention_mask
from trainwright.train.models.decoder import ForwardInputs
from trainwright.train.models.rotary import rotary_cos_sin
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.context import local_tokens, token_layout
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine


class CausalLM(Objective):
    kinds = ("decoder",)

    def inputs(self, batch: Batch, layout: Layout, scale: Tensor) -> tuple[Tensor, ForwardInputs]:
        """This rank's tokens of a micro-batch, and what its blocks share."""
        tokens, own = token_layout(batch, layout), local_tokens(batch, layout)
        cos_sin = rotary_cos_sin(self.shape, own.positions) if self.shape.position == "rope" else None
        mask = attention_mask(self.shape, tokens, layout.whole_rows, layout.heads(self.shape.heads))
        return own.tokens, ForwardInputs(own.positions, cos_sin, mask, own.targets, scale)

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        return {"perplexity": math.exp(min(eval_loss, 700.0))}


OBJECTIVE = CausalLM
