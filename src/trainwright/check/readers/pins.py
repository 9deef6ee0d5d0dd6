"""Versions that a file pins: variables such as EFA_INSTALLER_VERSION, image tags, `pip install torch==`, archives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from trainwright.check.model import Command, Pin, ShellScript, Value
from trainwright.check.tables import table
from trainwright.spec.source import Span

_VERSION = re.compile(r"v?\d+(\.\d+)+")
_WORDS = (
    ("efa", re.compile(r"aws-efa-installer-(\d+\.\d+\.\d+)")),
    ("torch", re.compile(r"^torch==(\d+\.\d+(?:\.\d+)?)")),
    ("driver", re.compile(r"NVIDIA-Linux-\w+-(\d{3}\.\d+(?:\.\d+)?)")),
    ("ofi_nccl", re.compile(r"aws-ofi-nccl[-/]v?(\d+\.\d+\.\d+)(?:-aws)?\.tar")),
)
_REPOSITORIES = (
    ("ofi_nccl", re.compile(r"/aws-ofi-nccl(\.git)?$")),
    ("nccl", re.compile(r"NVIDIA/nccl(\.git)?$", re.IGNORECASE)),
)
_NVCR = re.compile(r"nvcr\.io[/#]nvidia/pytorch:(\d\d\.\d\d)-")


@cache
def _variables() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((software, re.compile(f"(?:{name})$")) for software, name in table("images")["variables"].items())


def pins_of(script: ShellScript) -> list[Pin]:
    """Every version a script pins."""
    pins = []
    for assignment in script.assignments:
        if "VER" not in assignment.name:
            continue
        for software, name in _variables():
            if name.match(assignment.name) and assignment.value.known and _VERSION.match(assignment.value.value):
                pins.append(Pin(software, assignment.value))
    for command in script.commands:
        for word in command.words:
            pins += _in_word(word)
        if command.program == "FROM" and len(command.words) > 1:
            pins += pins_in_image(command.words[1])
        pins += _cloned(command)
        image = command.options.get("container_image")
        if command.program == "srun" and image is not None:
            pins += pins_in_image(image)
    return pins


def _cloned(command: Command) -> Iterator[Pin]:
    """`git clone -b v1.14.2-aws …/aws-ofi-nccl`."""
    branch = command.options.get("branch") or command.options.get("b")
    if command.program != "git" or branch is None or not branch.known:
        return
    version = _VERSION.match(branch.value)
    for software, pattern in _REPOSITORIES:
        if version is not None and any(pattern.search(word.value) for word in command.words):
            yield Pin(software, part(branch, 0, version.end()))


def _in_word(word: Value[str]) -> Iterator[Pin]:
    for software, pattern in _WORDS:
        match = pattern.search(word.value) if word.known else None
        if match is not None:
            yield Pin(software, part(word, match.start(1), match.end(1)))


def pins_in_image(image: Value[str]) -> list[Pin]:
    """The versions that an image's tag names."""
    pins = []
    nvcr = _NVCR.search(image.value)
    if nvcr is not None:
        held = table("images")["nvcr"].get(nvcr[1], {})
        pins += [Pin(software, replace(image, value=version)) for software, version in held.items()]
    for software, patterns in table("images")["tags"].items():
        for pattern in patterns:
            match = re.search(pattern, image.value)
            if match is not None:
                pins.append(Pin(software, part(image, match.start(1), match.end(1))))
                break
    return pins


def part(value: Value[str], start: int, end: int) -> Value[str]:
    """A part of a value, with its own position when the value is written on one line."""
    span = value.span
    same = span.line == span.end_line and span.end_column - span.column == len(value.value)
    place = Span(span.line, span.column + start, span.line, span.column + end) if same else span
    text = value.value[start:end]
    return Value(text, place, text, value.key)
