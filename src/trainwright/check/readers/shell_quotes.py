"""Quotes of a shell script: the strings that it gives to another shell, and the line from which on its quotes no longer
pair. Of that bash names the last line, where it still waits for the quote."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

_WAITS = re.compile(r"unexpected EOF while looking for matching [`'](?P<mark>[\"'`])'")
_SAMPLES = 6  # ends of lines behind it, at each of which a quote must be open
# The string of `bash -c '…'`, in which `'"'"'` and `'\''` stand for a quote.
_OTHER_SHELL = re.compile(
    r"(?<!\w)(?P<shell>\w{0,4}sh)\s+(?:-\w+\s+)*-\w*c\s+\$?"
    r"(?P<quote>[\"'])(?:'\"'\"'|'\\''|\\.|(?!(?P=quote))[^\\])*(?:(?P=quote)|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ShellString:
    """The script of `bash -c "pip install x>=1"`: its lines and columns, its quotes, and the shell that runs it."""

    start: tuple[int, int]
    end: tuple[int, int]
    quote: str
    shell: str


def strings_of_shells(lines: Sequence[str]) -> list[ShellString]:
    starts = [0, *accumulate(len(line) + 1 for line in lines)]

    def place(offset: int) -> tuple[int, int]:
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    return [
        ShellString(place(match.end("quote")), place(match.end()), match["quote"], match["shell"])
        for match in _OTHER_SHELL.finditer("\n".join(lines))
    ]


def string_around(place: tuple[int, int], strings: list[ShellString]) -> ShellString | None:
    at = bisect_right(strings, place, key=lambda one: one.start) - 1
    return strings[at] if at >= 0 and place < strings[at].end else None


def unpaired_line(lines: list[str], what: str, says: Callable[[str], str]) -> int:
    """`what` is bash's message, `says` gives those about a text; 0 where no single line is to blame."""
    if _WAITS.search(what) is None:
        return 0

    def is_open(count: int) -> bool:
        return _WAITS.search(says("\n".join(lines[:count]))) is not None

    closed, opened = 0, len(lines)
    while opened - closed > 1:
        middle = (closed + opened) // 2
        closed, opened = (closed, middle) if is_open(middle) else (middle, opened)
    step = max((len(lines) - opened) // _SAMPLES, 1)
    return opened if all(is_open(count) for count in range(opened, len(lines), step)) else 0
