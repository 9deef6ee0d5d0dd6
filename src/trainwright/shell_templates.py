"""Shell scripts from templates: the only place that knows the template engine. Every value that a template prints is
quoted for the shell, unless a filter says what else it is: `plain` (script text already), `comment`, `json`."""

from __future__ import annotations

import json
import shlex
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


class ScriptText(str):
    """Text that is part of the script as it stands."""

    __slots__ = ()


def in_control(letter: str) -> bool:
    """Whether a character can end a line or steer a terminal."""
    return unicodedata.category(letter) in {"Cc", "Zl", "Zp"}


def quote(value: object) -> str:
    """A value as one word of bash, on one line whatever it holds: all that reaches a script goes through here."""
    text = str(value)
    if not any(in_control(letter) for letter in text):
        return shlex.quote(text)
    return "$'" + "".join(_escaped(letter) for letter in text) + "'"


def _escaped(letter: str) -> str:
    if in_control(letter):
        return "".join(f"\\x{byte:02x}" for byte in letter.encode())  # as bytes: the job's locale may be any
    return f"\\{letter}" if letter in "\\'" else letter


def shell_environment(folder: Path | Sequence[Path], **options: Any) -> Environment:
    """A template engine for the scripts of a folder, or of several: the first that has a name wins."""
    import jinja2

    def printed(value: object) -> str:
        if isinstance(value, jinja2.Undefined):  # an inline `if` without an `else`; all other gaps are errors
            return ""
        return value if isinstance(value, ScriptText) else quote(value)

    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
        finalize=printed, **options,
    )  # fmt: skip
    engine.filters["plain"] = ScriptText
    engine.filters["quote"] = lambda value: ScriptText(quote(value))
    engine.filters["comment"] = lambda value: ScriptText(" ".join(str(value).split()))
    engine.filters["json"] = lambda value: ScriptText(json.dumps(value))
    return engine
