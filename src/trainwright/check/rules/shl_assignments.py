"""SHL: assignments with blanks: `NAME = value` runs a command named NAME, `export NAME value` sets nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Command, File, ShellScript
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

# `NAME= "value"`: a command named value, with an empty NAME; `NAME= command` alone is an idiom
_AFTER = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=[ \t]+("[^"\n]*"|'[^'\n]*'|\d+)[ \t]*(?:#.*)?$""", re.MULTILINE
)
_EXPORT = re.compile(r"^[ \t]*(export[ \t]+([A-Za-z_]\w*)[ \t]+(/[\w./-]+|\d+))[ \t]*$", re.MULTILINE)


def spaced(script: ShellScript) -> Iterator[Problem]:
    """Commands whose second word is `=`; or begins with it, where the first is written as variables are."""
    for command in script.commands:
        if _assigns(command):
            yield problem(command.words[0], _effect(script, command), "write name=value without blanks")


def _effect(script: ShellScript, command: Command) -> str:
    """In the same words for every variable, so that several are one finding."""
    lines, at = script.text.split("\n"), command.words[0].span.line - script.first_line
    if 0 <= at < len(lines) and re.search(rf"\b{command.program}[ \t]+=[ \t]*\(", lines[at]):
        return "blanks before `=(`: a syntax error, at which the shell ends the script"
    return "blanks around `=`: the shell runs a command of this name, and the variable is not set"


def _assigns(command: Command) -> bool:
    if len(command.words) < 2 or not re.fullmatch(r"[A-Za-z_]\w*", command.program):
        return False
    invoked, second = command.invoked, command.words[1].value
    if invoked is None or invoked.value != command.program or command.program in ("echo", "printf"):
        return False
    return second == "=" or (command.program.isupper() and re.match(r"=(?!=)", second) is not None)


def blank_after_equals(file: File) -> Iterator[Problem]:
    """`NAME= "value"` runs the value as a command, and NAME stays empty."""
    for match in _AFTER.finditer(file.text) if file.format in ("sbatch", "shell") else ():
        line = file.text.count("\n", 0, match.start(1)) + 1
        column = match.start(1) - file.text.rfind("\n", 0, match.start(1))
        yield problem(
            Span(line, column, line, column + match.end(2) - match.start(1)),
            f"a blank after `=`: {match[1]} stays empty, and the shell runs {match[2]} as a command",
            f"write {match[1]}={match[2]}",
        )


def blank_for_equals(file: File) -> Iterator[Problem]:
    """`export NAME /path`: bash refuses the second word as a name, and NAME stays as it was."""
    for match in _EXPORT.finditer(file.text) if file.format in ("sbatch", "shell") else ():
        line, column = file.text.count("\n", 0, match.start(1)) + 1, len(match[0]) - len(match[0].lstrip()) + 1
        yield problem(
            Span(line, column, line, column + len(match[1])),
            f"a blank in place of `=`: {match[2]} is not set to {match[3]}",
            f"write export {match[2]}={match[3]}",
        )
