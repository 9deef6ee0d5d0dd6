"""The formats in which training frameworks print a step, read from data/log_patterns.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

# Without backtracking, and only from the start of a run of digits: a log may hold anything, and must not take minutes.
_NUMBER = r"((?<![\d.,])[-+]?(?:\d[\d,]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?|[-+]?(?i:nan|inf))"
_SCALED = r"((?<![\d.,])\d[\d,.]*+(?:[eE][-+]?\d++)? ?[kKMGBT]?)"
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step as its framework printed it. Counters are the framework's own; None: not printed."""

    step: int
    total: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None  # of the whole job
    tokens_per_s_gpu: float | None = None
    samples_per_s: float | None = None  # of the whole job
    step_s: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    tflops_gpu: float | None = None
    mfu: float | None = None  # as a share of 1
    framework: str = ""
    estimated: bool = False  # the log gives no step here; it was counted from lines or epochs

    def filled(self, other: StepRecord) -> StepRecord:
        """This record with what only the other one knows."""
        new = {
            item.name: getattr(other, item.name)
            for item in fields(self)
            if getattr(self, item.name) is None and getattr(other, item.name) is not None
        }
        return replace(self, **new) if new else self


Search = Any  # a compiled pattern's bound `search`


@dataclass(frozen=True, slots=True)
class Format:
    """How one framework prints a step."""

    name: str
    hint: str
    line: Search
    fields: tuple[tuple[str, Search], ...]
    more: tuple[str, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict)
    weak: bool = False
    from_bar: bool = False

    def values(self, text: str) -> dict[str, float]:
        values = {}
        for name, search in self.fields:
            match = search(text)
            number = number_of(match[match.lastindex]) if match is not None else None
            if number is not None:
                values[name] = number
        return values


@cache
def formats() -> tuple[Format, ...]:
    """The known formats, in the order they are tried."""
    data = tomllib.loads((Path(__file__).parent / "data" / "log_patterns.toml").read_text(encoding="utf-8"))
    return tuple(_format(entry) for entry in data["framework"])


def _format(entry: dict[str, Any]) -> Format:
    def compiled(pattern: str) -> Search:
        return re.compile(pattern.replace("<F>", _NUMBER).replace("<S>", _SCALED)).search

    return Format(
        name=entry["name"],
        hint=entry["hint"],
        line=compiled(entry["line"]),
        fields=tuple((name, compiled(pattern)) for name, pattern in entry["fields"].items()),
        more=tuple(entry.get("more", ())),
        variants=entry.get("variants", {}),
        weak=entry.get("weak", False),
        from_bar=entry.get("step_from") == "progress bar",
    )


def frameworks() -> list[str]:
    """The names a log can be recognised as."""
    names = [name for entry in formats() for name in (entry.name, *entry.variants)]
    return [*dict.fromkeys(names), "json"]


def number_of(text: str) -> float | None:
    """A printed number: commas as separators, K to T as factors; None where it is none."""
    scale = _SCALES.get(text[-1:], 1.0)
    try:
        return float(text.rstrip("kKMGBT ").replace(",", "")) * scale
    except ValueError:
        return None
