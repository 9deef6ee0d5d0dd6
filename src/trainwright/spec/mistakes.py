"""What is wrong with a spec, apart from loading it, so that `check` can speak of it without importing pydantic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.errors import UserError
from trainwright.spec.source import Span


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that does not fit the spec's shape."""

    file: str
    span: Span
    what: str
    fix: str = ""


class SpecError(UserError):
    """A spec with mistakes; all of them, each with its place."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        first = self.mistakes[0]
        more = f" (and {len(self.mistakes) - 1} more: `trainwright check` lists them)" if len(self.mistakes) > 1 else ""
        super().__init__(first.what + more, where=f"{first.file}:{first.span.line}:{first.span.column}", fix=first.fix)
