"""What a word or a command of a script is by its form: an installation, a name, the output of a program."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Command, EnvVar, Value
from trainwright.check.readers.shell_expand import Parts, joined
from trainwright.check.readers.shell_words import Word
from trainwright.spec.source import Span

_WRITTEN = re.compile(r"\b(\w+(?:\[\w+\])?)\+?=")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_GIVING = {"mpirun": ("-x",), "mpiexec": ("-x",), "docker": ("-e", "--env")}  # the options before `NAME=value`


def installer(command: Command) -> str:
    """The program that installs the packages that a command names."""
    words = [word.value for word in command.words]
    if not any(word in ("install", "download", "wheel", "create", "add") for word in words[1:6]):
        return ""
    if words[1:3] == ["-m", "pip"] or re.fullmatch(r"pip[\d.]*", words[0]):
        return "pip"
    return words[0] if words[0] in ("uv", "conda", "mamba", "micromamba") else ""


def adds_other_options(old: list[Parts], new: list[Parts]) -> bool:
    """Whether what is appended repeats no option that is there already."""
    names = [{text.partition("=")[0] for text in _texts(words) if text.startswith("-")} for words in (old, new)]
    return bool(names[1]) and not names[0] & names[1]


def is_output(word: Word) -> bool:
    """`"$(program)"`: what a program prints."""
    return bool(word.pieces) and word.pieces[0].kind == "command"


def is_no_name(word: Word) -> bool:
    """Whether a word cannot be the name of a variable, whatever its variables hold."""
    texts = [piece.text for piece in word.pieces if piece.kind == "text"]
    if any(re.search(r"\W", text) for text in texts):
        return word.items is None
    return word.literal[:1].isdecimal()


def _texts(words: list[Parts]) -> list[str]:
    return [joined(parts) for parts in words]


def names_with_open_brace(text: str) -> set[str]:
    """Names that are assigned a text with a `{` that is not part of `{name}`."""
    names: set[str] = set()
    for run in text.split():
        last = max((brace.start() for brace in re.finditer(r"\{(?!\w+\})", run)), default=0)
        names.update(match[1] for match in _WRITTEN.finditer(run, 0, last))
    return names


def options_in(words: list[Parts]) -> set[str]:
    """The names of the long options that words hold, with underscores."""
    return {name.replace("-", "_") for parts in words for name in re.findall(r"--([A-Za-z][\w-]*)", joined(parts))}


def given_variables(commands: list[Command]) -> Iterator[EnvVar]:
    """Variables given on a command line: mpirun -x or -genv, docker run -e, srun --export, env."""
    for command in commands:
        for flag, word in zip(command.words, command.words[1:], strict=False):
            if command.program == "env" or flag.value in _GIVING.get(command.program, ()):
                yield from _assigned(word, 0)
            elif command.program == "docker" and word.value.startswith("--env="):
                yield from _assigned(word, len("--env="))
            elif command.program == "srun" and word.value.startswith("--export="):
                for part in re.finditer(r"[^,=]+=[^,]*", word.value[len("--export=") :]):
                    yield from _assigned(word, len("--export=") + part.start(), len("--export=") + part.end())
        for flag, name, value in zip(command.words, command.words[1:], command.words[2:], strict=False):
            of_intel = flag.value in ("-genv", "-env") and command.program in ("mpirun", "mpiexec")
            if of_intel and _VARIABLE.fullmatch(name.value):
                yield EnvVar(name.value, value, name.span, prefix=True)


def _assigned(word: Value[str], start: int, end: int | None = None) -> Iterator[EnvVar]:
    """The variable in a part of a word."""
    name, equals, value = word.value[start:end].partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        return
    at, last = word.span, len(word.value) if end is None else end
    if at.line == at.end_line and len(word.value) == at.end_column - at.column:
        at = Span(at.line, at.column + start, at.line, at.column + last)
        place = Span(at.line, at.column + len(name) + 1, at.line, at.end_column)
    else:
        place = at
    yield EnvVar(name, Value(value, place, value, None, word.known), at, prefix=True)
