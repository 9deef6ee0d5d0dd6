"""Samples of prepared chats: rows of whole conversations, with only the learned tokens as targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.data.chat import LOSS
from trainwright.train.data.loader import Options, SampleId, Samples
from trainwright.train.data.source import Files, TokenSource, open_files


class ChatSamples(Samples):
    holds = "chats"

    def __init__(self, sources: Sequence[TokenSource], weights: Sequence[float], options: Options, held: bool) -> None:
        super().__init__(sources, weights, options, held)
        self.masks = [TokenSource(open_files(f"{s.files.where}/{LOSS}"), options.sequence) for s in self.sources]

    @classmethod
    def require(cls, files: Files, options: Options) -> None:
        super().require(files, options)
        rows, sequence = files.manifest.rows, options.sequence // cls.rows_per_sample
        if rows != sequence:
            what = f"the data holds rows of {rows} tokens, but --sequence is {sequence}"
            raise UserError(what, where=files.where, fix=f"--sequence {rows}")

    def batch(self, ids: Sequence[SampleId]) -> Batch:
        batch = super().batch(ids)
        learned = torch.stack([self.masks[which.source].tokens(which.sample)[1:] for which in ids])
        batch.targets[learned == 0] = IGNORED
        return batch


class PairSamples(ChatSamples):
    """A sample is two rows: the chosen and the rejected answer."""

    holds = "pairs"
    rows_per_sample = 2

    def batch(self, ids: Sequence[SampleId]) -> Batch:
        batch = super().batch(ids)
        tokens, targets, positions = (c.view(2 * len(ids), -1) for c in (batch.tokens, batch.targets, batch.positions))
        documents = None if batch.documents is None else batch.documents.view(2 * len(ids), -1)
        if documents is None:  # counted over both rows so far
            positions = positions % positions.shape[1]
        return PairBatch(tokens, targets, positions, documents)


class PairBatch(Batch):
    """Rows in pairs."""

    def ignore_rows(self, rows: list[bool]) -> None:
        self.targets[[flag for flag in rows for _ in range(2)]] = IGNORED
