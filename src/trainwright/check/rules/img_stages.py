"""IMG: a Dockerfile as its stages, each with its instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwright.check.readers.dockerfile import instructions
from trainwright.spec.source import Span

_KEYWORD = re.compile(r"\s*([A-Za-z]+)[ \t]+")
_FLAGS = re.compile(r"(--\w[\w-]*(=\S+)?\s+)+")


@dataclass(slots=True)
class Instruction:
    """One instruction, its continuation lines joined."""

    keyword: str
    text: str
    span: Span
    flags: str = ""


@dataclass(slots=True)
class Stage:
    """The instructions from one FROM to the next; of the first one, those before any FROM."""

    base: str = ""  # the image that it starts from, through other stages too
    shell: bool = False  # it, or a stage that it starts from, names its shell
    parts: list[Instruction] = field(default_factory=list)
    name: str = ""
    before: Stage | None = None  # the stage that it starts from

    @property
    def inherited(self) -> list[Instruction]:
        """Its instructions and those of the stages that it starts from."""
        return [*(self.before.inherited if self.before is not None else []), *self.parts]


def stages(text: str) -> Iterator[Stage]:
    """The stages of a Dockerfile, with what stands before the first FROM as one of its own."""
    named: dict[str, Stage] = {}
    stage = Stage()
    for number, lines in instructions(text.split("\n")):
        match = _KEYWORD.match(lines[0][1])
        if match is None:
            continue
        words = " ".join(line.rstrip().removesuffix("\\").strip() for _, line in lines)[len(match[1]) :].strip()
        flags = _FLAGS.match(words)
        column = match.start(1) + 1
        one = Instruction(
            match[1].upper(),
            words[flags.end() :] if flags is not None else words,
            Span(number, column, number, column + len(match[1])),
            flags[0] if flags is not None else "",
        )
        if one.keyword == "FROM":
            yield stage
            stage = _begun(one, named)
            named[stage.name] = stage
        else:
            stage.parts.append(one)
    yield stage


def _begun(one: Instruction, named: dict[str, Stage]) -> Stage:
    """The stage that a FROM begins. Names of stages are compared in small letters."""
    base, _, rest = one.text.partition(" ")
    name = rest.strip()[3:].strip().lower()
    before = named.get(base.lower()) if base else None
    if before is None:
        return Stage(base, name=name)
    shell = before.shell or any(part.keyword == "SHELL" for part in before.parts)
    return Stage(before.base, shell, name=name, before=before)
