"""Lines that look continued and are not: something stands behind their backslash."""

from __future__ import annotations

import re

AFTER_BACKSLASH = re.compile(r"(?<!\\)\\[ \t]+(?=$|#)")


def cuts(line: str, following: str) -> bool:
    """Whether a blank or a comment after the backslash ends a command, whose words go on in the next line. A blank
    argument at the end of a command is never meant; one at the end of a word may be part of a file's name."""
    blank = AFTER_BACKSLASH.search(line)
    if blank is None:
        return False
    alone = line[blank.start() - 1 : blank.start()] in (" ", "\t")
    return re.match(r"\s*-" if not alone else r"\s*-|\s+[\w./$\"'{]", following) is not None
