"""Which environment each pip command of a script installs into."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.check.model import Command, EnvVar, ShellScript, Value
from trainwright.spec.source import Span

_PIP = re.compile(r"pip(3(\.[0-9]+)?)?")
_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
CONDA = ("conda", "mamba", "micromamba")
_ELSEWHERE = {"-t", "--target", "--prefix", "--root", "--dry-run"}
_OTHER_ENVIRONMENT = {
    "source", ".", "activate", "deactivate", "workon", "mkvirtualenv", "virtualenv", "module", "ml", "eval", "FROM",
    "USER", "SHELL", "pyenv", *CONDA,
}  # fmt: skip
_OTHER_FOLDER = {"cd", "pushd", "popd", "WORKDIR"}
# Variables that say which environment a command installs into.
_PLACES = {
    "PATH", "VIRTUAL_ENV", "PYTHONUSERBASE", "CONDA_PREFIX", "PYTHONHOME", "UV_PYTHON", "UV_SYSTEM_PYTHON",
    "PIP_TARGET", "PIP_PREFIX", "PIP_PYTHON",
}  # fmt: skip
_PREFIX_LINES = 20  # a command follows the variables in front of it within these
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_INSTRUCTION = re.compile(r"[ \t]*(RUN|FROM|ENV|ARG|USER|WORKDIR|COPY|ADD|LABEL|SHELL|CMD|ENTRYPOINT)[ \t]")


@dataclass(frozen=True, slots=True)
class Place:
    """The environment that a command installs into, as far as the command says it."""

    tool: str
    python: str
    system: bool
    variables: tuple[tuple[str, str], ...]
    fixed: bool  # the same one from every folder


class Places:
    """Which environment each command of a script installs into, command by command in their order."""

    def __init__(self, script: ShellScript, text: str) -> None:
        self.lines = text.split("\n")
        named = {name for command in script.commands if of_pip(command) for name in _variables(command)}
        assigned = [one for one in script.assignments if one.name in _PLACES or one.name in named]
        self.waiting = sorted(assigned, key=lambda one: (one.span.line, one.span.column), reverse=True)
        self.prefixes: list[EnvVar] = []  # of the command that was reached
        self.moved = self.moved_folder = False  # by what precedes that command
        self.runs = self._runs() if script.kind == "dockerfile" else []
        self.lent = self.lent_folder = 0  # the RUN that changed its own shell only

    def leaves(self, command: Command, key: Place) -> bool:
        """Whether from this command on the environment of a key may be another one."""
        if self.moved or _switches(command) or "venv" in [word.value for word in command.words[1:3]]:
            return True
        return (self.moved_folder or command.program in _OTHER_FOLDER) and not key.fixed

    def key(self, command: Command) -> Place | None:
        """None where it cannot be told."""
        tool = command.invoked if command.invoked is not None else command.words[0]
        python, system = _python_of(command), any(word.value == "--system" for word in command.words)
        if command.runner is not None or not all(one.value.known for one in self.prefixes):
            return None
        given = tuple((one.name, one.value.value) for one in self.prefixes)
        uv = command.program == "uv"
        folder = python if uv else tool.value
        fixed = system or folder.startswith("/") or ("/" not in folder and not uv)
        return Place(tool.value, python, system, given, fixed)

    def reach(self, command: Command) -> None:
        """Go on to the next command. What a RUN changes in its shell ends with it."""
        at = command.words[0].span if command.words else command.span
        run = self._run(at.line)
        self.moved, self.moved_folder = self.lent not in (0, run), self.lent_folder not in (0, run)
        self.lent, self.lent_folder = (0 if self.moved else self.lent), (0 if self.moved_folder else self.lent_folder)
        kept = [one for one in self.prefixes if self._in_front(one, at)]
        while self.waiting and (self.waiting[-1].span.line, self.waiting[-1].span.column) < (at.line, at.column):
            one = self.waiting.pop()
            if self._in_front(one, at):
                kept.append(one)
            else:
                self.moved, self.lent = True, self._run(one.span.line) or self.lent
        self.prefixes = kept
        if _switches(command):
            self.lent = run or self.lent
        elif command.program in _OTHER_FOLDER:
            self.lent_folder = run or self.lent_folder

    def _in_front(self, one: EnvVar, at: Span) -> bool:
        """`NAME=value command`: nothing between them ends the command."""
        first, last = one.span.end_line, at.line
        lines = self.lines[first - 1 : last]
        if not 1 <= len(lines) <= _PREFIX_LINES:
            return False
        lines[-1] = lines[-1][: at.column - 1]
        lines[0] = lines[0][one.span.end_column - 1 :]
        return not re.search(r"[;&|\n]", re.sub(r"\\[ \t]*\n", "", "\n".join(lines)))

    def _runs(self) -> list[int]:
        """For each line of an image the line of the RUN that it belongs to; 0 for other instructions."""
        found, run = [], 0
        for number, line in enumerate(self.lines, start=1):
            match = _INSTRUCTION.match(line)
            if match is not None:
                run = number if match[1] == "RUN" else 0
            found.append(run)
        return found

    def _run(self, line: int) -> int:
        return self.runs[line - 1] if 1 <= line <= len(self.runs) else 0


def _switches(command: Command) -> bool:
    """Whether the commands after it may install into another environment."""
    if command.program == "unset":
        return any(word.value in _PLACES for word in command.words[1:])
    return command.program in _OTHER_ENVIRONMENT


def _variables(command: Command) -> list[str]:
    """The names in the path of a command and of its Python, where their values are not known."""
    return _VARIABLE.findall(f"{command.invoked.value if command.invoked is not None else ''} {_python_of(command)}")


def _python_of(command: Command) -> str:
    option = command.option("--python", "-p")
    return option.value if option is not None else ""


def of_pip(command: Command) -> list[Value[str]]:
    """`install` or `uninstall` and the words after it; none for other commands, or where it installs elsewhere."""
    words, texts = command.words, [word.value for word in command.words[:3]]
    if _PIP.fullmatch(command.program):
        rest = words[1:]
    elif (_PYTHON.fullmatch(command.program) and texts[1:] == ["-m", "pip"]) or texts[:2] == ["uv", "pip"]:
        rest = words[3:] if texts[1] == "-m" else words[2:]
    else:
        return []
    verb = next((n for n, word in enumerate(rest) if not word.value.startswith("-")), len(rest))
    if verb == len(rest) or rest[verb].value not in ("install", "uninstall"):
        return []
    return [] if any(word.value.partition("=")[0] in _ELSEWHERE for word in rest) else rest[verb:]
