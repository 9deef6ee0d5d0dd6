"""Supervised fine-tuning on chats: the next token, but only of what the assistant says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainwright.train.data.chat_samples import ChatSamples
from trainwright.train.data.loader import Options, Samples
from trainwright.train.data.named import open_samples
from trainwright.train.objectives.causal_lm import CausalLM


class SupervisedFineTuning(CausalLM):
    kinds = ("decoder",)

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Samples:
        return open_samples(names, options, cache, self.shape.vocab, held, ChatSamples)


OBJECTIVE = SupervisedFineTuning
