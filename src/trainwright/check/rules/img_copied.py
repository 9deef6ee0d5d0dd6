"""IMG: the files beside a Dockerfile as its instructions copy them into the image."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.check.beside import text_beside
from trainwright.check.launches.pip_places import of_pip
from trainwright.check.model import Command, File, Value
from trainwright.check.rules.img_stages import Instruction, Stage, stages

_TAKES_A_LIST = ("-r", "--requirement")
_REQUIREMENT = re.compile(r"([\w.-]+(?:\[[\w,.-]*\])?\s*[=~]==?\s*[^\s;#]+)\s*(\\|#.*|--hash.*)?")
_COPIES = ("COPY", "ADD")


def copied_text(before: list[Instruction], wanted: str, path: str) -> tuple[str, str]:
    """The name and the text of the file that the image has at `wanted` after these instructions, where a file beside
    the Dockerfile or above it was copied there; nothing where that is not certain."""
    here, copied = "/", []
    for one in before:
        words = one.text.split()
        if one.keyword == "WORKDIR":
            here = posixpath.join(here, one.text.strip())
        elif one.keyword in ("COPY", "ADD") and len(words) > 1 and "--from" not in one.flags:
            target = posixpath.normpath(posixpath.join(here, words[-1]))
            copied += [(target, source) for source in words[:-1]]
    own = os.path.dirname(os.path.abspath(path))
    place = posixpath.normpath(posixpath.join(here, wanted))
    names = [name for target, source in reversed(copied) for name in _sources(place, target, source.lstrip("/"))]
    for name in names if path != "<stdin>" else ():
        text = text_beside(path, name, [own, os.path.dirname(own)])
        if text:
            return name, text
    return "", ""


def _sources(place: str, target: str, source: str) -> Iterator[str]:
    """What becomes the file `place` where `source` is copied to `target`."""
    folder, name = posixpath.split(source)
    if place == target:
        yield source
    elif fnmatch.fnmatchcase(posixpath.basename(place), name) and posixpath.dirname(place) == target:
        yield posixpath.join(folder, posixpath.basename(place))
    elif not (inside := posixpath.relpath(place, target)).startswith(".."):
        yield posixpath.normpath(posixpath.join(source, inside))


def listed_requirements(file: File, command: Command) -> list[Value[str]]:
    """What the lists of a `pip install -r` of a Dockerfile pin, each with the name of its list; nothing of a list that
    the image may change."""
    pins: list[Value[str]] = []
    for _, word, name, text in lists_at_hand(file, command):
        lines = [_REQUIREMENT.fullmatch(line.strip()) for line in text.split("\n")]
        pins += [Value(match[1], word.span, name) for match in lines if match]
    return pins


def lists_at_hand(file: File, command: Command) -> Iterator[tuple[Value[str], Value[str], str, str]]:
    """The lists of a `pip install -r` of a Dockerfile: the option, its value, the file that is copied and its text."""
    for flag, word in pairwise(command.words):
        if flag.value in _TAKES_A_LIST and word.known and not _is_rewritten(file, posixpath.basename(word.value)):
            name, text = copied_text(_before(file, command), word.value, file.path)
            if text:
                yield flag, word, name, text


def _before(file: File, command: Command) -> list[Instruction]:
    """The instructions before a command, of its stage and of those that it starts from."""
    line = command.words[0].span.line
    begun = [stage for stage in file.derived(_stages) if any(part.span.line <= line for part in stage.parts)]
    return [one for one in begun[-1].inherited if one.span.line < line] if begun else []


def _stages(file: File) -> list[Stage]:
    return list(stages(file.text))


def _is_rewritten(file: File, name: str) -> bool:
    """Whether another command than pip, or a redirection, names the list."""
    if re.search(rf">\s*[\w./-]*{re.escape(name)}", file.text):
        return True
    commands = (command for script in file.scripts for command in script.commands)
    others = (one for one in commands if one.program not in _COPIES and not of_pip(one))
    return any(name in word.value for one in others for word in one.words)
