"""Predict masked tokens: pretraining of encoders (BERT, RoBERTa, ESM-2), with other masks each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from trainwright.train.data.batch import Batch
from trainwright.train.data.loader import Options, Samples
from trainwright.train.data.masked import MaskedSamples, Masking
from trainwright.train.data.named import open_samples
from trainwright.train.models.encoder import EncoderInputs, bidirectional_mask
from trainwright.train.models.hf_encoders import PADDING
from trainwright.train.models.rotary import rotary_cos_sin
from trainwright.train.models.shape import RESERVED_POSITIONS, TOKEN_TYPES
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine


class MaskedLM(Objective):
    kinds = ("encoder",)

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Samples:
        """BERT and RoBERTa fill each sample with sentences, across documents, between a begin and an end token; ESM-2
        keeps proteins apart, and the data hold those tokens."""
        wrap = self.shape.family in TOKEN_TYPES
        rate = self.settings.mask_rate if self.settings else Masking().rate
        # transformers counts RoBERTa's positions from its padding token: id 1, and no text may have it.
        pad = PADDING["roberta"] if self.shape.family == "roberta" else None
        masking = Masking(rate, wrap, not wrap, self.shape.vocab, pad)
        if wrap:
            options = replace(options, sequence=options.sequence - 2, isolate=False)
        kind = partial(MaskedSamples, masking=masking)
        return open_samples(names, options, cache, self.shape.vocab, held, kind)

    def inputs(self, batch: Batch, layout: Layout, scale: Tensor) -> tuple[Tensor, EncoderInputs]:
        chosen = batch.chosen
        targets = batch.targets.flatten()
        return batch.tokens, EncoderInputs(
            positions=batch.positions + RESERVED_POSITIONS.get(self.shape.family, 0),
            cos_sin=rotary_cos_sin(self.shape, batch.positions) if self.shape.position == "rope" else None,
            mask=bidirectional_mask(batch.tokens, batch.documents, batch.mixed_rows),
            embed_scale=batch.embed_scale,
            chosen=chosen,
            targets=targets if chosen is None else targets.index_select(0, chosen),
            scale=scale,
        )

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        """Pseudo-perplexity: over the masked tokens."""
        return {"perplexity": math.exp(min(eval_loss, 700.0))}


OBJECTIVE = MaskedLM
