"""SLU: #SBATCH lines whose dashes are not those of an option: a word processor's, or with a blank behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.options import table
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_DASHED = re.compile(
    r"#SBATCH[ \t]+(?P<dashes>[-\u2010-\u2015\u2212]+)(?P<blank>[ \t]*)(?P<option>(?P<name>[A-Za-z-]+)\b.*)"
)
_SHORT = frozenset("abcdeGHJnNopqtwx")  # those that scripts use
_COMMENT = re.compile(r"\s+#.*")
_QUOTES = re.compile("[\u2018-\u201f]")
_WIDE = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}  # `：` and other letters as wide as Chinese ones


def dashes_of_no_option(lines: list[str]) -> Iterator[Problem]:
    """`lines` are those above the first command."""
    for number, line in enumerate(lines, start=1):
        match = _DASHED.match(line.rstrip())
        if match is None or not (match["blank"] or not match["dashes"].isascii()) or not _is_option(match["name"]):
            continue
        dashes = "-" if len(match["name"]) == 1 else "--"
        meant = f"{dashes}{_COMMENT.sub('', match['option'])}"
        how = "without the blank" if match["dashes"].isascii() else "with the hyphens of ASCII"
        where = Span(number, match.start("dashes") + 1, number, len(line.rstrip()) + 1)
        what = f"sbatch refuses the line: `{line[match.start('dashes') : match.end('name')]}` is no option"
        yield problem(
            where,
            what,
            f"write {meant}{',' if how.startswith('with ') else ''} {how}",
            level="error",
            why=reasons.REFUSED,
        )


def plain(value: str) -> str:
    """A value without the quotes, wide letters and second `=` that sbatch takes for parts of it."""
    return _QUOTES.sub("", value.translate(_WIDE)).removeprefix("=")


def _is_option(name: str) -> bool:
    return f"--{name}" in table()["sbatch"].takes_value or name in _SHORT
