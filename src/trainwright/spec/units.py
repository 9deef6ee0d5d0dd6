"""The units people write: `4.8TiB`, `15min`, `4M`, `50_000`. Parsed once, kept as plain numbers."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, WithJsonSchema

N = TypeVar("N", int, float)
LONGEST = 366 * 86_400  # seconds of a job or between checkpoints; more is a mistake of units

_NUMBER = r"(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*(?P<unit>[A-Za-zµ]*)\s*$")

_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _BYTES[f"{_letter}ib"] = _BYTES[f"{_letter}i"] = 1024**_power
    _BYTES[f"{_letter}b"] = _BYTES[_letter] = 1000**_power

_SECONDS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip

_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


def _parse(text: Any, units: dict[str, Any], example: str) -> float:
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not a quantity; write it like {example}")
    if isinstance(text, int | float):
        return _finite(text, 1.0, example)
    match = _QUANTITY.match(str(text))
    if not match:
        raise ValueError(f"{text!r} is not a quantity; write it like {example}")
    unit = match["unit"].lower()
    if unit not in units:
        known = ", ".join(sorted(u for u in units if u))
        raise ValueError(f"{text!r} has an unknown unit {match['unit']!r}; known: {known}")
    return _finite(match["number"].replace("_", ""), float(units[unit]), example)


def _finite(number: str | float, factor: float, example: str) -> float:
    """The product, where it is a number that arithmetic can go on with."""
    try:
        value = float(number) * factor
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"that is not a quantity; write it like {example}")
    return value


def parse_bytes(text: Any) -> int:
    """`4.8TiB` -> bytes. Without a unit the number is bytes."""
    return round(_parse(text, _BYTES, "4.8TiB or 500GB"))


def parse_seconds(text: Any) -> float:
    """`15min` -> seconds. Without a unit the number is seconds; `m` means minutes."""
    return _parse(text, _SECONDS, "15min, 2h or 30d")


def parse_count(text: Any) -> int:
    """`4M` -> 4,000,000. Suffixes are powers of ten: k, M, B (or G), T."""
    value = _parse(text, _COUNTS, "4M, 15T or 50_000")
    if value != round(value):
        raise ValueError(f"{text!r} is not a whole number")
    return round(value)


def format_bytes(size: float) -> str:
    """Bytes as people say them: `4.7 TiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """Seconds as a spec says them: `15min`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _size(text: Any) -> int:
    return _positive(text, parse_bytes(text))


def _duration(text: Any) -> float:
    seconds = _positive(text, parse_seconds(text))
    if seconds > LONGEST:
        raise ValueError(f"{text!r} is longer than a job can be: at most a year")
    return seconds


def _count(text: Any) -> int:
    return _positive(text, parse_count(text))


def _count_or_zero(text: Any) -> int:
    count = parse_count(text)
    if count < 0:
        raise ValueError(f"{text!r} must not be negative")
    return count


def _positive(text: Any, value: N) -> N:
    if value <= 0:
        raise ValueError(f"{text!r} must be above 0")
    return value


def _written(number: dict[str, Any], *examples: Any) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number", **number}], "examples": list(examples)})


_ABOVE_ZERO = {"exclusiveMinimum": 0}

Bytes = Annotated[int, BeforeValidator(_size), _written(_ABOVE_ZERO, "4.8TiB", "500GB")]
Seconds = Annotated[float, BeforeValidator(_duration), _written({**_ABOVE_ZERO, "maximum": LONGEST}, "15min", "2h")]
Count = Annotated[int, BeforeValidator(_count), _written(_ABOVE_ZERO, "4M", 50000)]
CountOrZero = Annotated[int, BeforeValidator(_count_or_zero), _written({"minimum": 0}, "2k", 0)]
