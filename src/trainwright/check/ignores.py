"""Comments that ignore a rule (`# trainwright: ignore[CAP004] the reason`): the lines they hold for, and those that
ignore nothing although they were meant to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.check.finding import Finding
from trainwright.check.own_codes import BAD_IGNORE
from trainwright.errors import did_you_mean, nearest
from trainwright.spec.source import Span

MARK = "trainwright"
_IGNORE = re.compile(r"(?:#|//)\s*trainwright:\s*ignore\[([A-Z0-9, ]+)\]")
_MEANT = re.compile(
    r"(?:#|//)\s*trainwright(?P<colon>\s*:)?\s*(?P<word>[A-Za-z]+)\b(?P<brackets>\[(?P<codes>[^\]]*)\])?"
)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\r?$")
_RESEMBLES = 0.6


def ignored_lines(text: str, dockerfile: bool = False) -> dict[int, set[str]]:
    """Line -> codes, or their beginnings, ignored there. A comment on a line of its own applies to the next line, and
    to those that continue it after a backslash."""
    silenced: dict[int, set[str]] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        match = _IGNORE.search(line)
        if match:
            alone = line[: match.start()].strip() == ""
            covered = _logical_line(lines, number, dockerfile) if alone else range(number, number + 1)
            for covered_line in covered:
                silenced.setdefault(covered_line, set()).update(re.findall(r"[A-Z0-9]+", match[1]))
    return silenced


def _logical_line(lines: list[str], after: int, dockerfile: bool) -> range:
    """The numbers of the lines of the command below line `after`. Other ignore comments may be in between; inside an
    instruction Docker drops comments, where a shell ends the command."""
    first = after
    while first < len(lines) and _IGNORE.match(lines[first].lstrip()):
        first += 1
    last = first
    while last < len(lines) - 1 and (
        _CONTINUED.search(lines[last]) or (dockerfile and last > first and lines[last].lstrip().startswith("#"))
    ):
        last += 1
    return range(first + 1, last + 2)


def bad_ignores(text: str, path: str, known: Sequence[str]) -> list[Finding]:
    """Comments that ignore nothing: with a misspelt word, without a code, or with the code of no rule."""
    findings = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _MEANT.search(line)
        complaint = _complaint(match, known) if match is not None else None
        if match is not None and complaint is not None:
            span = Span(number, match.start() + 1, number, match.end() + 1)
            findings.append(Finding(BAD_IGNORE, "warning", path, span, *complaint))
    return findings


def _complaint(match: re.Match[str], known: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with a comment, and the fix."""
    word, named = match["word"], re.findall(r"\w+", match["codes"] or "")
    rules = [prefix for prefix in named if any(code.startswith(prefix.upper()) for code in known)]
    if word != "ignore" or not match["colon"]:
        if (match["colon"] or rules) and (rules or nearest(word.lower(), ["ignore"], _RESEMBLES)):
            code = rules[0].upper() if rules else "CAP004"
            return f"{match[0].lstrip('#/ ')!r} ignores nothing", f"write `# trainwright: ignore[{code}] the reason`"
        return None
    unknown = [prefix for prefix in named if not any(code.startswith(prefix) for code in known)]
    if unknown:
        return f"no rule {unknown[0]!r}", did_you_mean(unknown[0].upper(), known)
    if not named:
        fix = "write `# trainwright: ignore[CAP004] the reason`"
        return "an ignore comment without the code of a rule has no effect", fix
    return None
