"""Where a value of a job comes from: a line of the spec, a flag, the recipe, the catalog, or a default with its
reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trainwright.spec.source import Span

Source = Literal["spec", "flag", "recipe", "catalog", "default"]


@dataclass(frozen=True, slots=True)
class Origin:
    """`where` is a place that a person can go to; `why` is given for what nobody wrote."""

    source: Source
    where: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.source == "default":
            return f"default: {self.why}"
        place = self.where if self.source in ("spec", "flag") else f"{self.source} {self.where}".strip()
        return f"{place}: {self.why}" if self.why else place


@dataclass(frozen=True, slots=True)
class Decision:
    """One value of a job: what it is, the path of the spec that stands for it, and where it comes from."""

    value: Any
    path: tuple[str | int, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class JobProblem:
    """A reason why a job cannot run as it is written. `code` is the rule of `check` that reports it."""

    code: str
    path: tuple[str | int, ...]  # in the spec
    what: str
    fix: str = ""
    span: Span | None = None  # its place in the recipe's file, where it stands there
