"""From log lines to the cause: every line is held against the known causes, and the one that lies deepest is the
verdict. What always follows from something else (a time-out, protected mode) counts only where nothing deeper is
found."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_WORD = re.compile(r"\{(\w+)\}")
_SECRET = re.compile(
    r"((?:AKIA|ASIA)[A-Z0-9]{16}|(?<![A-Za-z])(?i:secret|password|token)[\w-]*[\"']?\s*[=:]\s*[\"']?[^\s\"',]+)"
)
_FALLBACK = {"instance": "instance of that type", "code": "an error", "action": "see the message"}
LONGEST = 400  # characters of a line that are shown


@dataclass(frozen=True, slots=True)
class Cause:
    """One known way to fail."""

    key: str
    rank: int
    patterns: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None
    title: str
    why: str
    fix: str
    bills: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log that says what happened."""

    source: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a cluster failed, and what to do."""

    key: str
    title: str
    why: str
    fix: str
    bills: str  # what still costs money
    evidence: tuple[Line, ...]
    followed: tuple[str, ...] = ()  # titles of what came of it

    @property
    def paragraph(self) -> str:
        """The whole answer in one paragraph."""
        return f"{self.title}. {self.why} To fix it: {self.fix} Still billed: {self.bills}."

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Match:
    cause: Cause
    line: Line
    words: Mapping[str, str]


@cache
def causes() -> tuple[Cause, ...]:
    table = tomllib.loads(Path(__file__).with_name("causes.toml").read_text(encoding="utf-8"))
    return tuple(
        Cause(
            key=row["key"],
            rank=row["rank"],
            patterns=tuple(re.compile(each) for each in row["pattern"]),
            unless=re.compile(row["unless"]) if "unless" in row else None,
            title=row["title"],
            why=row["why"],
            fix=row["fix"],
            bills=table["bills"][row["bills"]],
        )
        for row in table["cause"]
    )


def explain(texts: Mapping[str, str] | Iterable[tuple[str, str]]) -> Explanation | None:
    """The cause that these logs tell (name -> text); None where no line is of a known one."""
    matches = [match for name, text in dict(texts).items() for match in _matches(name, text)]
    if not matches:
        return None
    deepest = min(matches, key=lambda match: match.cause.rank)  # the first of its rank
    same = [match for match in matches if match.cause.key == deepest.cause.key]
    words = {key: value for match in reversed(same) for key, value in match.words.items()}
    others = dict.fromkeys(m.cause for m in matches if m.cause.key != deepest.cause.key)
    # What lies as deep may be a second trouble; what lies higher came of it.
    return Explanation(
        key=deepest.cause.key,
        title=_filled(deepest.cause.title, words),
        why=_filled(deepest.cause.why, words),
        fix=_filled(deepest.cause.fix, words),
        bills=deepest.cause.bills,
        evidence=tuple(match.line for match in same[:3]),
        followed=tuple(_filled(cause.title, {}) for cause in others),
    )


def _matches(name: str, text: str) -> Iterable[_Match]:
    for number, line in enumerate(text.splitlines(), 1):
        for cause in causes():
            matches = [match for pattern in cause.patterns if (match := pattern.search(line)) is not None]
            if not matches or (cause.unless is not None and cause.unless.search(line)):
                continue
            words = {key: value for match in matches for key, value in match.groupdict().items() if value}
            yield _Match(cause, Line(name, number, _SECRET.sub("***", line.strip())[:LONGEST]), words)


def _filled(text: str, words: Mapping[str, str]) -> str:
    filled = _WORD.sub(lambda match: words.get(match[1], _FALLBACK.get(match[1], "")), text)
    return re.sub(r" +", " ", re.sub(r" \(\)", "", filled)).strip().rstrip(":").strip()
