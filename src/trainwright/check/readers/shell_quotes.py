"""The line of a shell script from which on its quotes no longer pair. bash names the last line, where it still waits
for the quote."""

from __future__ import annotations

import re
from collections.abc import Callable

_WAITS = re.compile(r"unexpected EOF while looking for matching [`'](?P<mark>[\"'`])'")
_SAMPLES = 6  # ends of lines behind it, at each of which a quote must be open


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
