"""Where a variable of a script holds: the branches it stands in, the commands it reaches, and what replaces it. What is
asked for each variable is looked up in tables of the whole file, which are made once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.check.model import Branch, Command, EnvVar, File, ShellScript, Value
from trainwright.check.readers.shell_launch import is_launcher

Place = tuple[int, int]  # line and column

_TEMPLATE_OPENS = re.compile(r"\s*(\{\{-?|\{%[-+]?)\s*(if|with|range|for)\b(?!.*\bend)")
_TEMPLATE_CLOSES = re.compile(r"\s*(\{\{-?|\{%[-+]?)\s*end")
# A name where a command may stand; the name itself is not consumed: `then` before a command is found, too.
_CALLED = re.compile(r"(?:^|[;&|({]|\$\(|\b(?:then|do|else)\b)[ \t]*(?=([\w:-]+)(?![\w:-]|[ \t]*\())", re.MULTILINE)
_RUN = re.compile(r"\s*RUN\b", re.IGNORECASE)
_OPTION_ALONE = re.compile(r"""\s*-\s+["']?(--?[\w-]+)["']?\s*(#.*)?$""")  # in YAML, the `-x` above `NAME=value`
_MOST_BRANCHES = 50  # around one command


def branches(file: File, variable: EnvVar | Value[str]) -> list[str]:
    """The lines that open the branches in which a variable is set: of a shell, or of a template."""
    templates = file.derived(_template_branches)
    opened = templates[variable.span.line - 1] if 0 < variable.span.line <= len(templates) else None
    return _openings(file, opened) + _openings(file, _shell_branch(file, _start(variable)))


def _openings(file: File, branch: Branch | None) -> list[str]:
    openings: list[str] = []
    while branch is not None and len(openings) < _MOST_BRANCHES:
        if not branch.function or _is_a_choice(file, branch.function):
            openings.append(branch.opening)
        branch = branch.outer
    return openings[::-1]


def _template_branches(file: File) -> list[Branch | None]:
    """The innermost branch of a template that each line stands in."""
    opened: Branch | None = None
    by_line: list[Branch | None] = []
    for line in file.lines:
        by_line.append(opened)
        if _TEMPLATE_OPENS.match(line):
            opened = Branch(line, opened)
        elif _TEMPLATE_CLOSES.match(line) and opened is not None:
            opened = opened.outer
    return by_line


def _shell_branch(file: File, place: Place) -> Branch | None:
    places, opened = file.derived(_shell_branches)
    at = bisect_right(places, place) - 1
    return opened[at] if at >= 0 else None


def _shell_branches(file: File) -> tuple[list[Place], list[Branch | None]]:
    """Where each statement of the file's scripts begins, and its branch."""
    statements = sorted((one for script in file.scripts for one in script.branches), key=lambda one: one[0])
    return [place for place, _ in statements], [branch for _, branch in statements]


def _is_a_choice(file: File, function: str) -> bool:
    """Whether a function is for debugging, or nothing in the script calls it by its name."""
    return "debug" in function.lower() or function not in file.derived(_called_names)


def _called_names(file: File) -> set[str]:
    return set(_CALLED.findall(file.text))


def comment_of(file: File, variable: EnvVar) -> str:
    """The comment on the line of a variable or above it. Of YAML the reader keeps none; a value may stand one line
    below its name."""
    if variable.comment or file.format in ("shell", "sbatch"):
        return variable.comment
    lines, at = file.lines, variable.span.line - 1
    last = max(at, variable.value.span.line - 1)
    beside = [line.partition(" #")[2] for line in lines[at : last + 1]]
    if option_before(file, variable):
        at -= 1
        beside.append(lines[at].partition(" #")[2])
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        beside.append(lines[at].strip("# \t"))
    return "\n".join(filter(None, beside))


def option_before(file: File, variable: EnvVar) -> str:
    """The option that gives a variable to a program of a YAML list, such as `-x`: it stands in the line above."""
    at = variable.span.line - 1
    match = _OPTION_ALONE.match(file.lines[at - 1]) if variable.prefix and 0 < at <= len(file.lines) else None
    return match[1] if match is not None else ""


def is_built_only(file: File, variable: EnvVar) -> bool:
    """Whether a variable is exported in a RUN of a Dockerfile: it ends with that instruction."""
    if file.format != "dockerfile":
        return False
    first = file.derived(_first_lines)
    at = variable.span.line - 1
    return 0 <= at < len(first) and _RUN.match(file.lines[first[at]]) is not None


def _first_lines(file: File) -> list[int]:
    """The index of the line where the instruction of each line of a Dockerfile begins."""
    first: list[int] = []
    for at, above in enumerate(["", *file.lines[:-1]]):
        goes_on = at > 0 and (above.rstrip().endswith("\\") or above.lstrip().startswith("#"))
        first.append(first[-1] if goes_on else at)
    return first


@dataclass(frozen=True, slots=True)
class _Commands:
    """The commands of a script in the order of their places."""

    commands: list[Command]
    places: list[Place]
    around: list[int]  # the index of the command that each is a part of, or -1
    started: dict[int, list[Command]]  # by a runner, by its identity


def _sorted_commands(script: ShellScript) -> _Commands:
    commands = sorted(script.commands, key=lambda one: (_place(one), (-one.span.end_line, -one.span.end_column)))
    started: dict[int, list[Command]] = {}
    for command in script.commands:
        if command.runner is not None:
            started.setdefault(id(command.runner), []).append(command)
    around: list[int] = []
    for at, command in enumerate(commands):
        outer = at - 1
        while outer >= 0 and _end(commands[outer]) <= _place(command):
            outer = around[outer]
        around.append(outer)
    return _Commands(commands, [_place(one) for one in commands], around, started)


def any_reached(script: ShellScript, variable: EnvVar, condition: Callable[[Command], bool]) -> bool:
    """Whether a command that gets the variable fulfils a condition: one of those of its own line, where it is given to
    one, else any after it."""
    if variable.prefix:
        return any(condition(command) for command in given_to(script, variable))
    last = script.derived(_last_places)
    if condition not in last:
        last[condition] = max((_place(one) for one in script.commands if condition(one)), default=(0, 0))
    return last[condition] > _start(variable)


def _last_places(_script: ShellScript) -> dict[Callable[[Command], bool], Place]:
    """Where the last command stands that fulfils a condition; filled in as conditions are asked for."""
    return {}


def given_to(script: ShellScript, variable: EnvVar) -> list[Command]:
    """The commands of a line that get a variable that is written before them, or among their options."""
    table = script.derived(_sorted_commands)
    at = bisect_right(table.places, _start(variable)) - 1
    own: list[Command] = []
    while at >= 0:
        if _end(table.commands[at]) > _start(variable):
            own.append(table.commands[at])
        at = table.around[at]
    if not own:
        own = _next_commands(table, variable)
    return own + [command for runner in own for command in table.started.get(id(runner), ())]


def _next_commands(table: _Commands, variable: EnvVar) -> list[Command]:
    """The first command behind a variable, with those of the same line that it starts."""
    first = bisect_right(table.places, _start(variable))
    if first == len(table.places):
        return []
    same_place = table.commands[first : bisect_right(table.places, table.places[first])]
    return [command for command in same_place if command.span == table.commands[first].span]


def is_replaced(script: ShellScript, variable: EnvVar) -> bool:
    """Whether the script gives the variable another value, or unsets it, before anything uses it."""
    if variable.prefix:
        return False
    changes = script.derived(_changes).get(variable.name)
    changed = changes.after(variable) if changes is not None else None
    if changed is None:
        return False
    starts = script.derived(_starts)
    first = bisect_right(starts, _start(variable))
    return first == len(starts) or starts[first] >= changed


def _starts(script: ShellScript) -> list[Place]:
    return sorted(_place(command) for command in script.commands if starts_something(command))


class _Changes:
    """Where a variable is given a value, or none, in the order of the script."""

    def __init__(self, changes: list[tuple[Place, str | None]]) -> None:
        changes.sort(key=lambda one: one[0])
        self.places = [place for place, _ in changes]
        self.values = [value for _, value in changes]
        self.other = [len(changes)] * len(changes)  # the index of the next one with another value
        for at in range(len(changes) - 2, -1, -1):
            self.other[at] = at + 1 if self.values[at + 1] != self.values[at] else self.other[at + 1]

    def after(self, variable: EnvVar) -> Place | None:
        """Where the variable gets another value after the place where it is set."""
        at = bisect_right(self.places, _start(variable))
        if at < len(self.places) and self.values[at] == variable.value.value:
            at = self.other[at]
        return self.places[at] if at < len(self.places) else None


def _changes(script: ShellScript) -> dict[str, _Changes]:
    by_name: dict[str, list[tuple[Place, str | None]]] = {}
    for one in script.assignments:
        if not one.prefix:
            by_name.setdefault(one.name, []).append((_start(one), one.value.value))
    for command in script.commands:
        for word in command.words[1:] if command.program == "unset" else ():
            by_name.setdefault(word.value, []).append((_place(command), None))
    return {name: _Changes(changes) for name, changes in by_name.items()}


_NO_RUN = re.compile(r"-c|-V|--version|-")
_TOOLS = re.compile(r"(i?pdb|debugpy|pytest|unittest|cProfile|pip|venv|jupyter\w*|notebook|torch\.utils\.collect_env)")


def starts_something(command: Command) -> bool:
    """Whether a command runs a program of the user's on the GPUs, rather than a line of Python or a tool of it."""
    words = [word.value for word in command.words[1:]]
    if command.program.endswith("_perf") or any("train" in word.lower() for word in words):
        return command.program not in ("echo", "cd", "cat", "mkdir", "ls", "cp", "mv", "rm", "export", "source", "tar")
    if not is_launcher(command.program):
        return False
    if not command.program.startswith("python"):
        return True
    options = [word for word in words if word.startswith("-")]
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    first = next((word for word in words if not word.startswith("-")), "")
    built = first.endswith("setup.py") or _TOOLS.fullmatch(module) is not None
    return bool(words) and not built and not (options[:1] and _NO_RUN.fullmatch(options[0]))


def _start(variable: EnvVar | Value[str]) -> Place:
    return variable.span.line, variable.span.column


def _place(command: Command) -> Place:
    return command.span.line, command.span.column


def _end(command: Command) -> Place:
    return command.span.end_line, command.span.end_column
