"""Several questions in one: every combination of models, numbers of tokens and deadlines, each answered like one asked
alone. Deadlines share one search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.predict.advice import Advice, NoOffer, advice_of, search
from trainwright.predict.constants import Constants
from trainwright.predict.request import AdviceRequest
from trainwright.train.models.shape import ModelShape


@dataclass(frozen=True)
class Answer:
    """One question, and its advice or the reason why there is none."""

    request: AdviceRequest
    advice: Advice | None
    reason: str = ""

    @property
    def question(self) -> str:
        """Model and number of tokens."""
        return f"{self.request.shape.name} {short(self.request.tokens)}"

    @property
    def label(self) -> str:
        """The whole question in a few words."""
        within = self.request.deadline_days
        return self.question if within is None else f"{self.question} in {within:g} d"


def short(tokens: float) -> str:
    """15e12 as 15T."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if tokens >= size:
            return f"{tokens / size:.4g}{letter}"
    return f"{tokens:g}"


def sweep(
    models: Sequence[ModelShape],
    tokens: Sequence[float],
    deadlines: Sequence[float | None],
    rest: AdviceRequest,
    c: Constants,
) -> list[Answer]:
    """Every combination; `rest` holds what the questions share."""
    answers = []
    for shape in models:
        for count in tokens:
            question = replace(rest, shape=shape, tokens=count)
            searched = search(question, c)
            for deadline in deadlines:
                request = replace(question, deadline_days=deadline)
                try:
                    answers.append(Answer(request, advice_of(searched, request, c)))
                except NoOffer as nothing:
                    answers.append(Answer(request, None, f"{nothing.what}; {nothing.fix}"))
    return answers
