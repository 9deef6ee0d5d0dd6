"""Dockerfiles -> model. The instructions become one shell script (ENV exports, ARG assigns, RUN runs, FROM is a
command), so that rules about commands and variables serve images too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.readers.pins import pins_of
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import Source

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
_RUN_FLAGS = re.compile(r"(--(mount|network|security)=\S+\s+)+")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_LEGACY_ENV = re.compile(r"([A-Za-z_]\w*)([ \t]+)(?!=)")
_KEPT = {"FROM", "WORKDIR", "COPY", "ADD", "USER", "SHELL"}


def read(file: File) -> None:
    """Fill the file's one script and its pins."""
    script = read_script(_as_shell(file.text), "dockerfile")
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.lstrip().startswith("#"):
            script.comments[number] = line.strip().lstrip("#").strip()
    file.scripts.append(script)
    file.pins += pins_of(script)


def _as_shell(text: str) -> Source:
    source = Source("", [], [])
    for number, lines in instructions(text.split("\n")):
        match = _INSTRUCTION.match(lines[0][1])
        if match is None:
            continue
        keyword = match[1].upper()
        rest = lines[0][1][match.end() :]
        if keyword == "RUN":
            _run(source, rest, match.end(), lines)
        elif keyword == "ENV":
            legacy = _LEGACY_ENV.match(rest)
            if legacy is not None and "=" not in legacy[1]:
                _add(source, f"export {legacy[1]}=", number, match.end() + 1)
                _add_lines(source, rest[legacy.end() :], match.end() + legacy.end(), lines)
            else:
                _add(source, "export ", number, 1)
                _add_lines(source, rest, match.end(), lines)
        elif keyword == "ARG" and "=" in rest:
            _add_lines(source, rest, match.end(), lines)
        elif keyword == "ARG":
            _add(source, f"read {rest.strip()}\n", number, 1)  # set by who builds the image
        elif keyword in _KEPT:
            _add(source, keyword + " ", number, 1)
            _add_lines(source, rest, match.end(), lines)
    if not source.indexes:
        _add(source, "\n", 1, 1)
    return source


def _run(source: Source, rest: str, offset: int, lines: list[tuple[int, str]]) -> None:
    flags = _RUN_FLAGS.match(rest)
    if flags is not None:
        rest, offset = rest[flags.end() :], offset + flags.end()
    if _HEREDOC.match(rest):
        for number, line in lines[1:-1]:
            _add(source, line + "\n", number, 1)
    elif not rest.startswith("["):
        _add_lines(source, rest, offset, lines)


def _add_lines(source: Source, rest: str, offset: int, lines: list[tuple[int, str]]) -> None:
    _add(source, rest + "\n", lines[0][0], offset + 1)
    for number, line in lines[1:]:
        _add(source, line + "\n", number, 1)


def _add(source: Source, text: str, line: int, column: int) -> None:
    source.indexes.append(len(source.text))
    source.places.append((line, column))
    source.text += text


def instructions(lines: list[str]) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Each instruction as its lines with their numbers; comment lines inside it are dropped, as Docker does."""
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        start, held = at, [(at + 1, lines[at])]
        heredoc = _HEREDOC.search(lines[at]) if lines[at].lstrip()[:3].upper() == "RUN" else None
        if heredoc is not None and not lines[at].rstrip().endswith("\\"):
            at += 1
            while at < len(lines) and lines[at].strip() != heredoc[1]:
                held.append((at + 1, lines[at]))
                at += 1
            held.append((at + 1, heredoc[1]))
        while held[-1][1].rstrip().endswith("\\") and at + 1 < len(lines):
            at += 1
            if lines[at].strip() and not lines[at].lstrip().startswith("#"):
                held.append((at + 1, lines[at]))
        at += 1
        yield start + 1, held
