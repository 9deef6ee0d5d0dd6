"""Log lines for a terminal: what ranks print comes from programs and data of others, and a terminal obeys its control
sequences (titles, cursor moves, clipboard writes, replies). Colours stay, all others go."""

from __future__ import annotations

import re
from typing import TextIO

# Colours; then strings to the terminal (OSC, DCS, PM, APC, SOS) with their end; other sequences; single controls.
_CONTROL = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def safe_text(text: str) -> str:
    """A line without control sequences but colours. A carriage return, as of a progress bar, starts a new line: what
    it would have overwritten stays to be seen."""
    kept = _CONTROL.sub(lambda match: match["colour"] or "", text.rstrip("\r"))
    coloured = "\x1b[" in kept and not kept.endswith("\x1b[0m")
    return kept.replace("\r", "\n") + ("\x1b[0m" if coloured else "")


def for_stream(text: str, stream: TextIO) -> str:
    """The text as it is for a file or pipe, which takes it as data; safe for a terminal."""
    return safe_text(text) if stream.isatty() else text
