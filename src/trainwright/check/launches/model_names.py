"""Which model a job claims to train, by its name, and whether its dimensions agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from trainwright.check.model import ModelDims, Value, known

if TYPE_CHECKING:
    from trainwright.train.models.shape import ModelShape

_TOKEN = re.compile(r"[a-z]+|\d+[a-z]*(?:\d+[a-z]+)?")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.I)
_SMALL = re.compile(r"debug|tiny|mini|toy|test|smoke|proxy", re.I)
# A size in a name is rounded, and says nothing of embeddings: Llama 3.2 "1B" has 1.24 billion parameters.
_LOW, _HIGH = 0.75, 1.3


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    from trainwright.train.models.shape import shapes

    patterns = []
    for name in sorted(shapes(), key=len, reverse=True):
        body = r"[-_. ]*".join(re.escape(token) for token in _TOKEN.findall(name))
        patterns.append((name, re.compile(rf"(?<![a-z0-9]){body}(?![a-z0-9])", re.I)))
    return tuple(patterns)


def published(names: Iterable[str]) -> ModelShape | None:
    """The published model that one of the names means; the longest match wins."""
    from trainwright.train.models.shape import shapes

    for text in names:
        if len(text) > 200 or _SMALL.search(text) or len(_sizes(text)) > 1:
            continue
        for name, pattern in _patterns():
            if pattern.search(text):
                return shapes()[name]
    return None


@dataclass(frozen=True, slots=True)
class Stated:
    """The dimensions that a job states."""

    hidden: int | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    vocab: int | None
    experts: int | None

    @classmethod
    def of(cls, model: ModelDims) -> Stated:
        return cls(
            known(model.hidden),
            known(model.layers),
            known(model.heads),
            known(model.kv_heads),
            known(model.ffn),
            known(model.vocab),
            known(model.experts),
        )

    @property
    def complete(self) -> bool:
        """Whether they fix a size: a mixture of experts has more ways to be counted."""
        return bool(self.hidden and self.layers and self.heads) and not self.experts

    def parameters(self) -> list[int]:
        """The sizes these dimensions can mean: gated or plain MLP, tied or own output head, common vocabularies."""
        hidden, layers, heads = self.hidden or 0, self.layers or 0, self.heads or 1
        kv = self.kv_heads or heads
        ffn = self.ffn or 4 * hidden  # trainers that gate the MLP shrink this default, to the same size
        kinds = (2, 3) if self.ffn else (2,)
        attention = 2 * hidden * hidden + 2 * hidden * hidden * kv // heads
        vocabularies = [self.vocab] if self.vocab else [32_000, 50_304, 128_256]
        return [
            layers * (attention + matrices * hidden * ffn) + tables * vocab * hidden
            for matrices, tables, vocab in product(kinds, (1, 2), vocabularies)
        ]


def differences(stated: Stated, model: ModelDims, shape: ModelShape) -> Iterator[tuple[Value[int], str, int]]:
    """Where the job differs from the model it names. Fewer layers alone is a cut-down run, not a mistake."""
    named = (
        ("hidden", "a hidden size of {}", shape.hidden),
        ("layers", "{} layers", shape.layers),
        ("heads", "{} heads", shape.heads),
        ("kv_heads", "{} key-value heads", shape.kv_heads),
        ("ffn", "a feed-forward size of {}", shape.ffn),
    )
    wrong = [one for one in named if getattr(stated, one[0]) not in (None, one[2])]
    if [name for name, _, _ in wrong] == ["layers"] and (stated.layers or 0) < shape.layers:
        return
    for name, phrase, should in wrong:
        yield getattr(model, name), phrase.format(getattr(stated, name)), should


@dataclass(frozen=True, slots=True)
class Size:
    """A number of parameters as a name gives it."""

    text: str
    parameters: float

    def covers(self, count: int) -> bool:
        return _LOW * self.parameters <= count <= _HIGH * self.parameters


def _sizes(name: str) -> list[tuple[str, str]]:
    return _SIZE.findall(re.sub(r"[-_]", " ", name))


def named_size(name: str) -> Size | None:
    """The one size a name holds; a name with several says nothing."""
    sizes = _sizes(name[:200])
    if len(sizes) != 1 or _SMALL.search(name):
        return None
    number, unit = sizes[0]
    return Size(f"{number}{unit}", float(number) * (1e9 if unit.lower() == "b" else 1e6))
