"""Log lines of a run cannot steer the terminal of whoever reads them."""

from __future__ import annotations

import io

import pytest

from trainwright.report.log_text import for_stream, safe_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("written", "shown"), [
    ("[rank 0] step 3\tloss 2.5", "[rank 0] step 3\tloss 2.5"),
    ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
    ("\x1b[38:2::1:2:3mred", "\x1b[38:2::1:2:3mred\x1b[0m"),  # the colour ends with the line
    ("\x1b]0;title\x07a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
    ("\x1bP+q544e\x1b\\a\x9d0;x\x9cb", "ab"),
    ("\x1b[2J\x1b[H\x1b[1Aa\x9b5nb\x1b[?1049h", "ab"),
    ("\x1bca\x1b(0b\x1b[6nc", "abc"),
    ("a\x07\x08\x08\x7fb\x85", "ab"),
    ("10%\r20%\r30%\r", "10%\n20%\n30%"),
    ("cut \x1b", "cut "),
    ("Größe 東京 ✓", "Größe 東京 ✓"),
])  # fmt: skip
def test_only_colours_reach_a_terminal(written, shown):
    assert safe_text(written) == shown
    assert for_stream(written, Terminal()) == shown
    assert for_stream(written, io.StringIO()) == written
