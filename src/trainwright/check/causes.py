"""One cause is one finding: what a rule says in the same words about several lines or files is one thing to do (a
directory to create, a line that was copied). The first place keeps the finding and lists the others (`also`).
Formats that annotate lines keep them all, and so do baselines."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from trainwright.check.engine import Result
from trainwright.check.finding import Finding, Place

_NAMED = 5  # places, of many
_NAMING = "TW"  # findings about the names themselves: another name is another mistake
_NAMES = re.compile(r"'[^']*'|^[\w./-]+(?=:)|--[\w-]+|\$\w+|\b\d[\w.,]*")  # what differs between two places


def merge_causes(result: Result, *, habits: bool = True) -> None:
    """Leave the first finding of each cause, in the order of the result; `habits`: and of each mistake that one file
    repeats with other names (a queue's name with an underscore, twelve times)."""
    causes: dict[tuple[str, ...], list[Finding]] = {}
    for finding in result.findings:
        causes.setdefault((finding.code, finding.level, finding.message), []).append(finding)
    if habits:
        kept, causes = list(causes.values()), {}
        for first, *others in kept:
            alone = (first.code, first.level, first.file, _NAMES.sub("…", first.message))
            habit = _one_file([first, *others]) and not first.code.startswith(_NAMING)
            causes.setdefault((*alone, "" if habit else first.message), []).extend([first, *others])
    result.findings = [_with_places(first, others) for first, *others in causes.values()]


def _one_file(findings: list[Finding]) -> bool:
    return all(one.file == findings[0].file for one in findings)


def _with_places(first: Finding, others: list[Finding]) -> Finding:
    return replace(first, also=tuple(Place(one.file, one.span.line, one.span.column) for one in others))


def message_with_places(finding: Finding) -> str:
    """The message as people read it, with the first of the other places."""
    lines = dict.fromkeys(p.line for p in finding.also if p.file == finding.file and p.line != finding.span.line)
    files = {p.file: p.line for p in reversed(finding.also) if p.file != finding.file}
    shown = ", ".join(map(str, list(lines)[:_NAMED])) + (" …" if len(lines) > _NAMED else "")
    places = [f"line{'s' if len(lines) > 1 else ''} {shown}"] if lines else []
    places += [f"{_seen_from(finding.file, name)}:{line}" for name, line in sorted(files.items())]
    if not places:
        return finding.message
    more = f" and {len(places) - _NAMED} more files" if len(places) > _NAMED else ""
    return f"{finding.message} (also {', '.join(places[:_NAMED])}{more})"


def _seen_from(first: str, name: str) -> str:
    """Another file's name, short where it lies beside the first."""
    return os.path.basename(name) if os.path.dirname(name) == os.path.dirname(first) else name
