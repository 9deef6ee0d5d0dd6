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
        causes.setdefault((finding.code, finding.level, finding.message, finding.fix), []).append(finding)
    if habits:
        kept, causes = list(causes.values()), {}
        for first, *others in kept:
            alone = (
                first.code,
                first.level,
                first.file,
                *(_NAMES.sub("…", text) for text in (first.message, first.fix)),
            )
            habit = _one_file([first, *others]) and not first.code.startswith(_NAMING)
            own = () if habit else (first.message, first.fix)
            causes.setdefault((*alone, *own), []).extend([first, *others])
    result.findings = [_with_places(first, others) for first, *others in causes.values()]


def _one_file(findings: list[Finding]) -> bool:
    return all(one.file == findings[0].file for one in findings)


def _with_places(first: Finding, others: list[Finding]) -> Finding:
    also = tuple(Place(one.file, one.span.line, one.span.column) for one in others)
    return replace(first, fix=_fix_of_all(first, others), also=also)


def _fix_of_all(first: Finding, others: list[Finding]) -> str:
    """The first fix, and those of other lines that are not the same (64GB is 64Gi, and 32GB is 32Gi)."""
    fixes = {one.fix: one.span.line for one in reversed(others) if one.fix != first.fix}
    lines = sorted((line, fix) for fix, line in fixes.items())
    return "; ".join([first.fix, *(f"in line {line}: {fix}" for line, fix in lines[:_NAMED])])


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
