"""Shell scripts from templates: the only place that knows the template engine. Every value that a template prints is
quoted for the shell, unless a filter says what else it is: `plain` (script text already), `comment`, `json`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


class ScriptText(str):
    """Text that is part of the script as it stands."""

    __slots__ = ()


def quote(value: object) -> str:
    """One word of a shell command, whatever the value holds."""
    return shlex.quote(str(value))


def shell_environment(folder: Path, **options: Any) -> Environment:
    """A template engine for the scripts of a folder."""
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
