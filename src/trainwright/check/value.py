"""A value with its position, the unit that rules work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from trainwright.spec.source import Span

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True, unsafe_hash=True)
class Value(Generic[T_co]):
    """A value with its position. `text` is what was written; `key` is the position of its key. Like Span, it is not
    changed after it is made."""

    value: T_co
    span: Span
    text: str = ""
    key: Span | None = None
    known: bool = True
    default: bool = False  # of `${NAME:-value}`: whoever calls the script may give another

    def meaning(self, value: T, known: bool = True) -> Value[T]:
        """This position with another value, known only if the written one is."""
        return Value(value, self.span, self.text, self.key, self.known and known, self.default)


def known(value: Value[T] | None) -> T | None:
    """The value itself when it is known, else None."""
    return value.value if value is not None and value.known else None


def stated(value: Value[T] | None) -> T | None:
    """The value itself when it is known and not a mere default, else None."""
    return None if value is not None and value.default else known(value)
