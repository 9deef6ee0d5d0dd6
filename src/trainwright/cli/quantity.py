"""Flags that hold a quantity with a unit, such as 4M or 30d."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainwright.errors import UserError

T = TypeVar("T")


def quantity(option: str, text: str, parse: Callable[[str], T]) -> T:
    """Parse a flag's text; an error names the flag."""
    try:
        return parse(text)
    except ValueError as error:
        what, _, fix = str(error).partition("; ")
        raise UserError(what, where=option, fix=fix) from error


def positive(option: str, value: int) -> int:
    """The value of a flag that must be above zero."""
    if value <= 0:
        raise UserError(f"{option} is {value}", where=option, fix="give a number above 0")
    return value
