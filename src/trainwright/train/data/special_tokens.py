"""The special tokens that an objective needs (mask, begin, end), found in the tokenizer of the data. A tokenizer
without one gets it from the ids that the model has and the tokenizer does not use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.errors import UserError
from trainwright.train.data.format import TokenizerId
from trainwright.train.data.tokenizer import PROTEINS, ProteinTokenizer

MASK_NAMES = ("<mask>", "[MASK]")
PAD_NAMES = ("<pad>", "[PAD]")
BEGIN_NAMES = ("<s>", "<cls>", "[CLS]", "<bos>")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    begin: int
    end: int
    mask: int
    pad: int  # no sample has it; an export names it, for batches of texts
    never_masked: frozenset[int]  # every special token


@dataclass(frozen=True, slots=True)
class SampleTokens:
    """The tokens that an objective adds to those of the tokenizer: an exported tokenizer has to know them, too. All ids
    are the model's."""

    names: Mapping[str, int] = field(default_factory=dict)  # by the text that each gets where it has none
    roles: Mapping[str, int] = field(default_factory=dict)  # by the key of tokenizer_config.json
    begin: int | None = None  # the first token of every sample
    closed: bool = False  # every sample ends with the end token
    exchanged: tuple[int, int] | None = None  # two ids of the data that the model has the other way round

    def in_model(self, number: int) -> int:
        """The model's id of a token of the data."""
        one, other = self.exchanged or (number, number)
        return {one: other, other: one}.get(number, number)


def special_tokens(identity: TokenizerId, content: bytes | None, vocab: int) -> SpecialTokens:
    """The special tokens of masked language modelling; `vocab` is the model's."""
    if identity.name == PROTEINS and not identity.sha256:
        words = ProteinTokenizer.words
        special = frozenset(n for n, word in enumerate(words) if len(word) > 1 or word in ".-")
        return SpecialTokens(words.index("<cls>"), identity.eos, words.index("<mask>"), words.index("<pad>"), special)
    table = json.loads(content) if content is not None else {}
    added = {entry["content"]: int(entry["id"]) for entry in table.get("added_tokens", [])}
    listed = {int(entry["id"]) for entry in table.get("added_tokens", []) if entry.get("special")}
    words = table.get("model", {}).get("vocab", {})
    known = {**(words if isinstance(words, dict) else {}), **added}
    free = iter(range(identity.vocab, vocab))

    def number(names: tuple[str, ...], what: str) -> int:
        at = next((known[name] for name in names if name in known), None)
        at = next(free, None) if at is None else at
        if at is None:
            raise UserError(
                f"the tokenizer has no {what} token ({' or '.join(names)}) and uses all of the model's {vocab:,} ids",
                fix="a tokenizer with that token, or a model with a larger vocabulary",
            )
        return int(at)

    begin, mask, pad = number(BEGIN_NAMES, "begin"), number(MASK_NAMES, "mask"), number(PAD_NAMES, "padding")
    return SpecialTokens(begin, identity.eos, mask, pad, frozenset({*listed, begin, identity.eos, mask, pad}))
