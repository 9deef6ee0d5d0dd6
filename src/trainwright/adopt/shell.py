"""The command of a job in words that a spec can hold. Where a word depends on the running job (a variable, a command's
output), or the script prepares its shell first, one `bash -c` says the same on every rank."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable

from trainwright.check.model import EnvVar, ShellScript, Value

_VARIABLE = re.compile(r"\$(?:\{(\w+)|(\w+))")
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]+")


def variables_in(text: str) -> list[str]:
    """Names of the variables that a text mentions."""
    return [braced or plain for braced, plain in _VARIABLE.findall(text)]


def in_shell(value: Value[str]) -> str:
    """A word as a shell has to read it: constants quoted, what is not constant left to that shell."""
    if value.known:
        return value.value if _SAFE.fullmatch(value.value) else shlex.quote(value.value)
    return f'"{_escaped(value.value)}"'


def _escaped(text: str) -> str:
    """A text for double quotes; quotes inside `$(...)` belong to the command there and stay as they are."""
    done, depth = "", 0
    for index, char in enumerate(text):
        if char == "(" and (depth or text[index - 1 : index] == "$"):
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        done += f"\\{char}" if char in '"`' and not depth else char
    return done


def needed(script: ShellScript | None, texts: Iterable[str]) -> list[EnvVar]:
    """Assignments of the script that the texts need at run time, in the script's order."""
    if script is None:
        return []
    last = {entry.name: entry for entry in script.assignments if not entry.value.known}
    names: set[str] = set()
    todo = [name for text in texts for name in variables_in(text)]
    while todo:
        name = todo.pop()
        if name in last and name not in names:
            names.add(name)
            todo += variables_in(last[name].value.value)
    return sorted((last[name] for name in names), key=lambda entry: (entry.span.line, entry.span.column))


def assignment(entry: EnvVar, export: bool = False) -> str:
    return f"{'export ' if export else ''}{entry.name}={in_shell(entry.value)}"


def command_words(
    words: list[Value[str]], prelude: list[str], bare: Container[Value[str]] = (), flag: str = "-c"
) -> list[str]:
    """The words of a rank's command; under `bash -c` where a shell has to prepare or expand something. `bare` words
    become several: they were written without quotes."""
    if all(word.known for word in words):
        plain = [word.value for word in words]
        return ["bash", flag, "; ".join([*prelude, 'exec "$@"']), "rank", *plain] if prelude else plain
    line = " ".join(word.value if word in bare else in_shell(word) for word in words)
    return ["bash", flag, "; ".join([*prelude, f"exec {line}"])]
