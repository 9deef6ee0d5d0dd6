"""Samples for masked language modelling: each time a sample is seen, other tokens are masked (dynamic masking). The
choice depends on seed, epoch and sample alone, so that every plan and every resumed run masks the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.data.loader import Options, SampleId, Samples
from trainwright.train.data.shuffle import mix, uniform
from trainwright.train.data.source import TokenSource
from trainwright.train.data.special_tokens import (
    BEGIN_NAMES,
    MASK_NAMES,
    PAD_NAMES,
    SampleTokens,
    SpecialTokens,
    special_tokens,
)

MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens: replaced by the mask, by a random token; the rest stay (BERT)
ESM_RATIO = 0.15 * MASKED  # the share of masks that ESM-2 was trained with


@dataclass(frozen=True, slots=True)
class Masking:
    rate: float = 0.15  # share of the tokens that are predicted
    wrap: bool = True  # begin and end token around each sample (RoBERTa); else around each document in the data
    token_dropout: bool = False  # ESM-2: a mask has no embedding, and the others are scaled up
    vocab: int = 0  # the model's
    pad: int | None = None  # the id of padding, where the model fixes it (RoBERTa): what the data has there moves


class MaskedSamples(Samples):
    """As `Samples`, with some tokens masked and only those as targets."""

    for_decoders = False

    def __init__(
        self,
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        options: Options,
        held: bool,
        masking: Masking,
    ) -> None:
        super().__init__(sources, weights, options, held)
        self.masking = masking
        first = self.sources[0]
        self.special: SpecialTokens = special_tokens(first.manifest.tokenizer, first.files.tokenizer(), masking.vocab)
        own, wanted = self.special.pad, masking.pad
        self.exchanged: tuple[int, int] | None = None if wanted is None or wanted == own else (own, wanted)
        self.spared = torch.tensor(sorted(self.special.never_masked))
        allowed = torch.ones(self.vocab, dtype=torch.bool)
        allowed[self.spared[self.spared < self.vocab]] = False
        self.replacements = allowed.nonzero()[:, 0]

    def batch(self, ids: Sequence[SampleId]) -> Batch:
        plain = super().batch(ids)
        if self.masking.wrap:
            plain = self._wrapped(plain)
        chosen, replaced = self._chosen(plain.tokens, ids)
        targets = torch.where(chosen, plain.tokens, IGNORED)
        scale = self._embed_scale(replaced, plain.documents) if self.masking.token_dropout else None
        index = chosen.view(-1).nonzero()[:, 0]
        tokens, targets = self._in_model(replaced), self._in_model(targets)
        return replace(plain, tokens=tokens, targets=targets, chosen=index, embed_scale=scale)

    def added_tokens(self) -> SampleTokens:
        special, wrap, ids = self.special, self.masking.wrap, SampleTokens(exchanged=self.exchanged).in_model
        begin, end, mask, pad = map(ids, (special.begin, special.end, special.mask, special.pad))
        roles = {"mask_token": mask, "cls_token": begin, "pad_token": pad}
        roles |= {"bos_token": begin, "sep_token": end} if wrap else {}
        names = {BEGIN_NAMES[0]: begin, MASK_NAMES[0]: mask, PAD_NAMES[0]: pad}
        return SampleTokens(names, roles, begin if wrap else None, wrap, self.exchanged)

    def _in_model(self, tokens: Tensor) -> Tensor:
        """Tokens of the data as the model's."""
        if self.exchanged is None:
            return tokens
        one, other = self.exchanged
        return torch.where(tokens == one, other, torch.where(tokens == other, one, tokens))

    def _wrapped(self, plain: Batch) -> Batch:
        rows, width = plain.tokens.shape
        tokens = torch.empty(rows, width + 2, dtype=torch.int64)
        tokens[:, 0], tokens[:, 1:-1], tokens[:, -1] = self.special.begin, plain.tokens, self.special.end
        return Batch(tokens, tokens, torch.arange(width + 2).repeat(rows, 1))

    def _chosen(self, tokens: Tensor, ids: Sequence[SampleId]) -> tuple[Tensor, Tensor]:
        """Which tokens are to be predicted, and the tokens with those replaced."""
        width = tokens.shape[1]
        seeds = [mix(which.sample, mix(which.epoch, mix(which.source, self.options.seed))) for which in ids]
        choice, action, word = torch.split(uniform(seeds, 3 * width), width, dim=1)
        chosen = (choice < self.masking.rate) & ~torch.isin(tokens, self.spared)
        random = self.replacements[(word * len(self.replacements)).long()]
        replaced = torch.where(chosen & (action < MASKED), self.special.mask, tokens)
        return chosen, torch.where(chosen & (action >= 1 - RANDOM), random, replaced)

    def _embed_scale(self, tokens: Tensor, documents: Tensor | None) -> Tensor:
        """ESM-2's token dropout: 0 for a mask, and for the others of its sequence what keeps the mean."""
        masks = tokens == self.special.mask
        if documents is None:
            documents = torch.zeros_like(tokens)
        share = torch.zeros(tokens.shape, dtype=torch.float32)
        lengths = share.scatter_add(1, documents, torch.ones_like(share))
        observed = share.scatter_add(1, documents, masks.float()) / lengths.clamp(min=1)
        return torch.where(masks, 0.0, (1 - ESM_RATIO) / (1 - observed).gather(1, documents).clamp(min=1e-6))
