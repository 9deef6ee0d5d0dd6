"""What became of a file that was adopted: the spec, and for everything that stood in the file whether it was carried
over, assumed or dropped, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwright.check.model import Value
from trainwright.spec.source import Span


@dataclass(frozen=True, slots=True)
class Note:
    """One thing of a file: what was written, where, and what became of it."""

    what: str
    where: str
    why: str


@dataclass(slots=True)
class Adoption:
    """A spec as plain data, and the notes on how it came about. `names` are placeholders that still need a value."""

    file: str
    spec: dict[str, Any] = field(default_factory=dict)
    carried: list[Note] = field(default_factory=list)
    assumed: list[Note] = field(default_factory=list)
    dropped: list[Note] = field(default_factory=list)

    def place(self, at: Span | Value[Any] | None) -> str:
        span = at.span if isinstance(at, Value) else at
        return f"{self.file}:{span.line}" if span is not None else self.file

    def carry(self, what: str, at: Span | Value[Any] | None, to: str) -> None:
        self.carried.append(Note(what, self.place(at), to))

    def assume(self, what: str, at: Span | Value[Any] | None, why: str) -> None:
        self.assumed.append(Note(what, self.place(at), why))

    def drop(self, what: str, at: Span | Value[Any] | None, why: str) -> None:
        self.dropped.append(Note(what, self.place(at), why))

    @property
    def job(self) -> dict[str, Any]:
        """The one job of the spec; made when it is first asked for."""
        job: dict[str, Any] = self.spec.setdefault("jobs", [{}])[0]
        return job

    @property
    def queue(self) -> dict[str, Any]:
        queue: dict[str, Any] = self.spec.setdefault("queues", [{}])[0]
        return queue
