"""A value with its place: the atom of everything that rules look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from trainwright.spec.source import Span

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Value(Generic[T_co]):
    """A value with its place. `text` is what was written; `key` is where its key stands."""

    value: T_co
    span: Span
    text: str = ""
    key: Span | None = None
    known: bool = True

    def meaning(self, value: T, known: bool = True) -> Value[T]:
        """What stands here, understood as another value; that is never better known than what was written."""
        return Value(value, self.span, self.text, self.key, self.known and known)


def known(value: Value[T] | None) -> T | None:
    """The value itself when the file says it plainly, else None."""
    return value.value if value is not None and value.known else None
