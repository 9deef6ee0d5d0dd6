"""Where a variable of a script holds: the branches it stands in, the commands it reaches, and what replaces it."""

from __future__ import annotations

import re

from trainwright.check.model import Command, EnvVar, File, ShellScript, Value
from trainwright.check.readers.shell_launch import is_launcher

_OPENS = re.compile(r"\s*(if|case)\b(?!\s*:)(?!.*\b(fi|esac)\s*;?\s*(#.*)?$)")
_ELSE = re.compile(r"\s*(elif|else)\b(?!\s*:)")
_CLOSES = re.compile(r"\s*(fi|esac)\b")
_TEMPLATE_OPENS = re.compile(r"\s*(\{\{-?|\{%[-+]?)\s*(if|with|range|for)\b(?!.*\bend)")
_TEMPLATE_CLOSES = re.compile(r"\s*(\{\{-?|\{%[-+]?)\s*end")
_GUARDED_BLOCK = re.compile(r".*(&&|\|\|)\s*\{\s*(#.*)?$")
_FUNCTION = re.compile(r"\s*(?:function\s+(?P<a>[\w:-]+)|(?P<b>[\w:-]+)\s*\(\s*\))[^{]*\{")
_BLOCK_ENDS = re.compile(r"\s*\}")
# `[ … ] && export A=1`, `$DEBUG && …`, `command -v x || …`; what only follows the success of a command is no choice.
_GUARD = re.compile(r"((^|[&|({]|\s)(\[\[?|test|\(\(|!)\s.*(&&|\|\|)|(^|[&|({]\s*)\$\{?\w+\S*\s*(&&|\|\|)|\|\|)")
_ONE_LINE = re.compile(r"(^|[;&|({]\s*)(if|case)\s(?!.*\b(fi|esac)\b)")
_IN_GUARDED = re.compile(r"(&&|\|\|)\s*\{[^}]*$")
_GOES_ON = re.compile(r"(\\|&&|\|\|)\s*$")
_RUN = re.compile(r"\s*RUN\b", re.IGNORECASE)
_MOST_LINES = 20  # of one command


def branches(file: File, variable: EnvVar | Value[str]) -> list[str]:
    """The lines that open the branches in which a variable is set: of a shell, or of a template."""
    opened: list[tuple[str, str]] = []
    lines = file.text.split("\n")
    for line in lines[: variable.span.line - 1]:
        if _TEMPLATE_OPENS.match(line):
            opened.append(("template", line))
        elif _TEMPLATE_CLOSES.match(line):
            _close(opened, ("template",))
        elif _OPENS.match(line):
            opened.append(("if", line))
        elif _ELSE.match(line) and opened:
            opened[-1] = (opened[-1][0], f"{opened[-1][1]} {line}")
        elif _CLOSES.match(line):
            _close(opened, ("if",))
        elif _FUNCTION.match(line) and not line.rstrip().endswith("}"):
            opened.append(("function", line))
        elif _GUARDED_BLOCK.match(line):
            opened.append(("{", line))
        elif _BLOCK_ENDS.match(line):
            _close(opened, ("function", "{"))
    held = [line for kind, line in opened if kind != "function" or _is_a_choice(file.text, line)]
    before = _before(lines, variable)
    if _FUNCTION.match(before) and _is_a_choice(file.text, before):
        held.append(before)
    guarded = _ONE_LINE.search(before) or _IN_GUARDED.search(before) or _GUARD.search(before.rpartition(";")[2])
    return [*held, before] if guarded else held


def _is_a_choice(text: str, line: str) -> bool:
    """Whether a function is for debugging, or nothing in the script calls it by its name."""
    match = _FUNCTION.match(line)
    name = (match["a"] or match["b"] or "") if match is not None else ""
    called = rf"(^|[;&|({{]|\$\(|\b(then|do|else)\b)[ \t]*{re.escape(name)}(?![\w:-]|[ \t]*\()"
    return "debug" in name.lower() or re.search(called, text, re.MULTILINE) is None


def _close(opened: list[tuple[str, str]], kinds: tuple[str, ...]) -> None:
    if opened and opened[-1][0] in kinds:
        opened.pop()


def _before(lines: list[str], variable: EnvVar | Value[str]) -> str:
    """What stands in front of a variable in its command."""
    at = variable.span.line - 1
    text = lines[at][: variable.span.column - 1] if at < len(lines) else ""
    while at > 0 and variable.span.line - at < _MOST_LINES and _GOES_ON.search(lines[at - 1]):
        at -= 1
        text = f"{lines[at].rstrip().removesuffix(chr(92))} {text}"
    return text.strip()


def comment_of(file: File, variable: EnvVar) -> str:
    """The comment on the line of a variable or above it. Of YAML the reader keeps none; a value may stand one line
    below its name."""
    if variable.comment or file.format in ("shell", "sbatch"):
        return variable.comment
    lines, at = file.text.split("\n"), variable.span.line - 1
    last = max(at, variable.value.span.line - 1)
    beside = [line.partition(" #")[2] for line in lines[at : last + 1]]
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        beside.append(lines[at].strip("# \t"))
    return "\n".join(filter(None, beside))


def is_built_only(file: File, variable: EnvVar) -> bool:
    """Whether a variable is exported in a RUN of a Dockerfile: it ends with that instruction."""
    if file.format != "dockerfile":
        return False
    lines, at = file.text.split("\n"), variable.span.line - 1
    while at > 0 and (lines[at - 1].rstrip().endswith("\\") or lines[at - 1].lstrip().startswith("#")):
        at -= 1
    return at < len(lines) and _RUN.match(lines[at]) is not None


def reached(script: ShellScript, variable: EnvVar) -> list[Command]:
    """The commands that get the variable: those of its own line, where it is given to one, else all after it."""
    after = [command for command in script.commands if _place(command) > _start(variable)]
    if not variable.prefix:
        return after
    around = [command for command in script.commands if _holds(command, variable)]
    first = min(after, key=_place, default=None)
    own = around or [command for command in after if first is not None and command.span == first.span]
    return own + [command for command in script.commands if any(command.runner is one for one in own)]


def _holds(command: Command, variable: EnvVar) -> bool:
    span = command.span
    return (span.line, span.column) <= _start(variable) < (span.end_line, span.end_column)


def is_replaced(script: ShellScript, variable: EnvVar) -> bool:
    """Whether the script gives the variable another value, or unsets it, before anything uses it."""
    if variable.prefix:
        return False
    later = [
        _start(one)
        for one in script.assignments
        if one.name == variable.name and not one.prefix and one.value.value != variable.value.value
    ]
    later += [
        _place(one)
        for one in script.commands
        if one.program == "unset" and any(word.value == variable.name for word in one.words[1:])
    ]
    changed = min((place for place in later if place > _start(variable)), default=None)
    return changed is not None and not any(
        starts_something(one) and _place(one) < changed for one in reached(script, variable)
    )


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


def _start(variable: EnvVar) -> tuple[int, int]:
    return variable.span.line, variable.span.column


def _place(command: Command) -> tuple[int, int]:
    return command.span.line, command.span.column
