"""Give back the spans that were cut out of a text: pretraining of T5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainwright.train.data.batch import Batch
from trainwright.train.data.loader import Options, Samples
from trainwright.train.data.named import open_samples
from trainwright.train.data.spans import SpanLengths, SpanSamples, span_lengths
from trainwright.train.flops import seq2seq_flops
from trainwright.train.models.encoder_decoder import Seq2SeqInputs
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine

START = 0  # the decoder begins with the padding token


class SpanCorruption(Objective):
    kinds = ("encoder-decoder",)

    @property
    def lengths(self) -> SpanLengths:
        assert self.settings is not None
        return span_lengths(self.settings.sequence, self.settings.mask_rate)

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Samples:
        lengths = self.lengths
        kind = partial(SpanSamples, lengths=lengths, vocab=self.shape.vocab)
        raw = replace(options, sequence=lengths.tokens, isolate=False)  # T5 fills samples across documents
        return open_samples(names, raw, cache, self.shape.vocab, held, kind)

    @property
    def tokens_per_sample(self) -> int:
        """Of both sides."""
        return self.lengths.inputs + self.lengths.targets

    def inputs(self, batch: Batch, layout: Layout, scale: Tensor) -> tuple[Tensor, Seq2SeqInputs]:
        before = batch.targets[:, :-1].clamp(min=0)
        shifted = torch.cat([torch.full_like(before[:, :1], START), before], dim=1)
        return batch.tokens, Seq2SeqInputs(shifted, batch.targets, scale)

    def flops_per_token(self) -> float:
        return seq2seq_flops(self.shape, self.lengths.inputs, self.lengths.targets, self.lora_rank)

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        return {"perplexity": math.exp(min(eval_loss, 700.0))}


OBJECTIVE = SpanCorruption
