"""A finding: one problem at one position of one file, and, where it is safe, the edit that fixes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainwright.spec.source import Span

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of a span. `--fix` applies what cannot break a working file, `--unsafe-fixes` all."""

    span: Span
    text: str
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """Another place of the same cause."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, how to fix it."""

    code: str
    level: Level
    file: str
    span: Span
    message: str
    fix: str = ""
    edit: Edit | None = None
    why: str = ""  # this case's own reason, or the rule's
    also: tuple[Place, ...] = ()  # other places of the same cause, where causes are merged

    @property
    def url(self) -> str:
        """The rule's page, relative to the project's root."""
        return f"docs/rules/{self.code}.md"

    def row(self) -> dict[str, Any]:
        """The finding as `--format json` prints it."""
        return {
            "code": self.code,
            "level": self.level,
            "file": self.file,
            "line": self.span.line,
            "column": self.span.column,
            "end_line": self.span.end_line,
            "end_column": self.span.end_column,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
            "url": self.url,
            "also": [asdict(place) for place in self.also],
        }


@dataclass(frozen=True, slots=True)
class Skip:
    """A rule that did not run, and why. A required check that was skipped is not green."""

    code: str
    reason: str
