"""Samples for span corruption (T5): spans of a sample are cut out, and the decoder has to give them back. All samples
have one length on both sides, so nothing is padded. The choice depends on seed, epoch and sample alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.batch import Batch
from trainwright.train.data.loader import Options, SampleId, Samples
from trainwright.train.data.shuffle import mix
from trainwright.train.data.source import TokenSource
from trainwright.train.data.special_tokens import PAD_NAMES, SampleTokens

MEAN_SPAN = 3.0


@dataclass(frozen=True, slots=True)
class SpanLengths:
    """The numbers of one sample: 568 tokens with 85 of noise in 28 spans become 512 and 114."""

    tokens: int
    noise: int
    spans: int

    @property
    def inputs(self) -> int:
        return self.tokens - self.noise + self.spans + 1  # each span leaves a sentinel; then the end token

    @property
    def targets(self) -> int:
        return self.noise + self.spans + 1


def span_lengths(inputs: int, rate: float) -> SpanLengths:
    """The longest sample whose encoder side has at most `inputs` tokens."""
    best = None
    for tokens in range(2, 2 * inputs):
        noise = min(max(round(tokens * rate), 1), tokens - 1)
        lengths = SpanLengths(tokens, noise, max(1, round(noise / MEAN_SPAN)))
        if lengths.inputs > inputs:
            break
        best = lengths
    if best is None:
        raise UserError(f"sequences of {inputs} tokens are too short for span corruption", fix="--sequence 512")
    return best


class SpanSamples(Samples):
    """`options.sequence` is the number of tokens that are read; `lengths` says what becomes of them."""

    for_decoders = False

    def __init__(
        self,
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        options: Options,
        held: bool,
        lengths: SpanLengths,
        vocab: int,
    ) -> None:
        super().__init__(sources, weights, options, held)
        self.lengths = lengths
        self.end = self.sources[0].manifest.tokenizer.eos
        self.sentinels, self.pad = sentinels(self.sources[0], lengths.spans, vocab)

    def batch(self, ids: Sequence[SampleId]) -> Batch:
        plain = super().batch(ids)
        tokens = torch.empty(len(ids), self.lengths.inputs, dtype=torch.int64)
        targets = torch.empty(len(ids), self.lengths.targets, dtype=torch.int64)
        for row, which in enumerate(ids):
            seed = mix(which.sample, mix(which.epoch, mix(which.source, self.options.seed)))
            noise = self._noise(torch.Generator().manual_seed(seed >> 1))
            tokens[row] = self._without(plain.tokens[row], noise)
            targets[row] = self._without(plain.tokens[row], ~noise, first=True)
        return Batch(tokens, targets, torch.arange(self.lengths.inputs).repeat(len(ids), 1))

    def added_tokens(self) -> SampleTokens:
        names = {f"<extra_id_{n}>": at for n, at in enumerate(self.sentinels.tolist())}
        return SampleTokens({**names, PAD_NAMES[0]: self.pad}, {"pad_token": self.pad}, closed=True)

    def _noise(self, generator: torch.Generator) -> Tensor:
        """Which tokens are cut out: spans of random lengths between stretches of random lengths, a stretch first."""
        spans, noise = self.lengths.spans, self.lengths.noise
        kept = partition(self.lengths.tokens - noise, spans, generator)
        lost = partition(noise, spans, generator)
        kinds = torch.arange(2 * spans) % 2 == 1
        return kinds.repeat_interleave(torch.stack([kept, lost], 1).flatten())

    def _without(self, tokens: Tensor, left_out: Tensor, first: bool = False) -> Tensor:
        """The tokens with each run of `left_out` replaced by its sentinel, then the end token."""
        starts = left_out & ~torch.cat([torch.zeros(1, dtype=torch.bool), left_out[:-1]])
        numbers = starts.cumsum(0) - 1
        marked = torch.where(starts, self.sentinels[numbers.clamp(min=0)], tokens)
        return torch.cat([marked[~left_out | starts], torch.tensor([self.end])])


def partition(total: int, parts: int, generator: torch.Generator) -> Tensor:
    """`total` as a sum of `parts` whole numbers from 1 up, all such sums equally likely."""
    cuts = (torch.randperm(total - 1, generator=generator)[: parts - 1] + 1).sort().values
    return torch.diff(cuts, prepend=torch.zeros(1, dtype=torch.int64), append=torch.tensor([total]))


def sentinels(source: TokenSource, count: int, vocab: int) -> tuple[Tensor, int]:
    """<extra_id_0> and so on of the tokenizer, else the last ids of the model, which the tokenizer must not use; and
    its padding token, else the first such id."""
    content = source.files.tokenizer()
    added = json.loads(content).get("added_tokens", []) if content is not None else []
    known = {entry["content"]: entry["id"] for entry in added}
    named = [known[f"<extra_id_{n}>"] for n in range(count) if f"<extra_id_{n}>" in known]
    pad = next((known[name] for name in PAD_NAMES if name in known), None)
    identity = source.manifest.tokenizer
    lacking = {f"{count} sentinels": count * (len(named) < count), "a padding token": int(pad is None)}
    if identity.vocab + sum(lacking.values()) > vocab:
        needs = " and ".join(what for what, ids in lacking.items() if ids)
        what = f"span corruption needs {needs}: the tokenizer has none, and of the model's {vocab:,} ids it uses"
        fix = "a tokenizer with <extra_id_0>… and <pad>, or a model with a larger vocabulary"
        raise UserError(f"{what} {identity.vocab:,}", where=source.files.where, fix=fix)
    numbers = torch.tensor(named) if len(named) == count else vocab - 1 - torch.arange(count)
    return numbers, int(identity.vocab if pad is None else pad)
