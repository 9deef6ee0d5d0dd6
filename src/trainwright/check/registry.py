"""Rules: one small function each under a decorator. Its docstring is its documentation;
`--explain` and the docs print it."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from trainwright.check.finding import Edit, Level
from trainwright.check.model import File, Value
from trainwright.errors import UserError
from trainwright.spec.source import Node, Span

Needs = Literal["offline", "aws", "node"]
_CODE = re.compile(r"^[A-Z][A-Z0-9]{1,7}\d{3}$")


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule yields: a position and what is wrong there. The engine adds code, level and file."""

    span: Span
    message: str
    fix: str = ""
    level: Level | None = None  # where one rule has a milder case
    edit: Edit | None = None
    why: str = ""  # this case's own reason, where the rule's `Why:` is about another


RuleFunction = Callable[..., Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and what the engine needs to run it."""

    code: str
    level: Level
    needs: Needs
    function: RuleFunction

    @property
    def title(self) -> str:
        return (self.function.__doc__ or "").strip().splitlines()[0].rstrip(".")

    @property
    def document(self) -> str:
        """The docstring: what, why, fix, source."""
        lines = (self.function.__doc__ or "").strip().splitlines()
        return "\n".join([lines[0], *(line.removeprefix("    ") for line in lines[1:])])

    @property
    def reason(self) -> str:
        """The docstring's `Why:` paragraph, on one line."""
        return _reason(self.function.__doc__ or "")

    def run(self, file: File, facts: Any = None) -> Iterator[Problem]:
        return self.function(file) if self.needs == "offline" else self.function(file, facts)


@cache
def _reason(docstring: str) -> str:
    paragraphs = (paragraph.strip() for paragraph in re.split(r"\n\s*\n", docstring))
    return next((" ".join(p.removeprefix("Why:").split()) for p in paragraphs if p.startswith("Why:")), "")


def rule(code: str, level: Level = "error", needs: Needs = "offline") -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule under its code. User rules use the same decorator, from an entry point `trainwright.rules`."""
    if not _CODE.match(code):
        raise ValueError(f"rule code {code!r} is not a family and a number, like CAP001")

    def register(function: RuleFunction) -> RuleFunction:
        existing = _RULES.get((code, needs))
        if existing is not None and existing.function.__qualname__ != function.__qualname__:
            raise ValueError(f"two rules carry the code {code}")
        _RULES[code, needs] = Rule(code, level, needs, function)
        return function

    return register


def problem(
    at: Value[Any] | Span | Node,
    message: str,
    fix: str = "",
    *,
    level: Level | None = None,
    edit: Edit | None = None,
    why: str = "",
) -> Problem:
    """A problem at a value, a node or a span."""
    return Problem(at if isinstance(at, Span) else at.span, message, fix, level, edit, why)


_RULES: dict[tuple[str, Needs], Rule] = {}


@cache
def _load() -> None:
    from trainwright.check import rules

    for module in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"{rules.__name__}.{module.name}")
    _load_user_rules()


GROUP = "trainwright.rules"


def _load_user_rules() -> None:
    if not _user_rules_installed():
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # somebody else's package: report whatever it raises, with the package's name
            raise UserError(
                f"the rules of {entry.value!r} cannot be loaded: {type(error).__name__}: {error}",
                where=f"entry point {GROUP}: {entry.name}",
                fix="fix that package, or uninstall it",
            ) from error


def _user_rules_installed() -> bool:
    """Whether any installed package names our entry point group. Reading the small files costs a tenth of importing
    importlib.metadata, and almost never does any."""
    for folder in sys.path:
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError), open(f"{folder or '.'}/{name}/entry_points.txt", "rb") as file:
                if GROUP.encode() in file.read():
                    return True
    return False


def all_rules() -> tuple[Rule, ...]:
    """Every rule, built-in and user-defined, by code."""
    _load()
    return tuple(sorted(_RULES.values(), key=lambda r: (r.code, r.needs)))
