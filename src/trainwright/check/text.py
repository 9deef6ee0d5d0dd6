"""Findings as people read them: the place, an excerpt with a caret, the reason, the fix, and one summary line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.check.engine import Result
from trainwright.check.finding import Finding
from trainwright.check.registry import Rule

Paint = Callable[[str, str], str]

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_WIDEST_EXCERPT = 110


@dataclass(frozen=True, slots=True)
class _Painter:
    """Colours on a terminal, plain text elsewhere."""

    colour: bool

    def __call__(self, text: str, look: str) -> str:
        if not self.colour:
            return text
        import click

        looks = {"bold": {"bold": True}, "dim": {"dim": True}, "fix": {"fg": "green"}}
        return click.style(text, **(looks.get(look) or {"fg": look, "bold": True}))  # type: ignore[arg-type]


def render(result: Result, rules: dict[str, Rule], colour: bool) -> str:
    """The whole report."""
    paint = _Painter(colour)
    told: set[str] = set()
    blocks = []
    for finding in result.findings:
        why = finding.why or reason(rules.get(finding.code))
        why = "" if why in told else why
        told.add(why)
        blocks.append("\n".join(_block(finding, result.texts.get(finding.file, ""), why, paint)))
    return "\n\n".join([*blocks, summary(result, len(rules), paint)])


def _block(finding: Finding, text: str, why: str, paint: Paint) -> Iterator[str]:
    place = f"{finding.file}:{finding.span.line}:{finding.span.column}"
    level = paint(finding.level, _COLOURS[finding.level])
    yield f"{level} {paint(finding.code, 'bold')} {finding.message}"
    gutter = max(3, len(str(finding.span.line)))
    yield f"{' ' * gutter}{paint('╭─', 'dim')} {paint(place, 'bold')}"
    lines = text.splitlines()
    if 0 < finding.span.line <= len(lines):
        yield from _excerpt(finding, lines, gutter, paint)
    if why:
        yield f"{' ' * gutter}{paint('│', 'dim')} {paint('why:', 'dim')} {why}"
    if finding.fix:
        label = "fix (--fix does it):" if finding.edit is not None else "fix:"
        yield f"{' ' * gutter}{paint('╰─', 'dim')} {paint(label, 'fix')} {finding.fix}"


def _excerpt(finding: Finding, lines: list[str], gutter: int, paint: Paint) -> Iterator[str]:
    """The line before, for context, the line itself, and a caret under the value."""
    number = finding.span.line
    before = lines[number - 2].expandtabs(1) if number > 1 else ""
    line = lines[number - 1].expandtabs(1)
    first = max(0, finding.span.column - _WIDEST_EXCERPT + 20)
    end = finding.span.end_column if finding.span.end_line == number else len(line) + 1
    width = max(1, min(end, len(line) + 1, first + _WIDEST_EXCERPT) - finding.span.column)
    if before.strip():
        yield f"{paint(f'{number - 1:>{gutter}}│', 'dim')} {paint(_cut(before, first), 'dim')}"
    yield f"{paint(f'{number:>{gutter}}│', 'dim')} {_cut(line, first)}"
    lead = finding.span.column - 1 - first + (2 if first else 0)
    caret = " " * lead + paint("^" * width, _COLOURS[finding.level])
    yield f"{' ' * gutter}{paint('│', 'dim')} {caret}"


def _cut(line: str, first: int) -> str:
    start = "… " if first else ""
    shown = line[first : first + _WIDEST_EXCERPT]
    return f"{start}{shown}" + (" …" if len(line) > first + _WIDEST_EXCERPT else "")


def reason(rule: Rule | None) -> str:
    """The rule's `Why:` paragraph, on one line."""
    if rule is None:
        return ""
    for paragraph in rule.document.split("\n\n"):
        if paragraph.strip().startswith("Why:"):
            return " ".join(paragraph.strip().removeprefix("Why:").split())
    return ""


def summary(result: Result, rules: int, paint: Paint) -> str:
    """One line: what was found, in how much, what was left out."""
    counts = {level: sum(f.level == level for f in result.findings) for level in _COLOURS}
    plural = {"error": "errors", "warning": "warnings", "info": "notes"}
    single = {"error": "error", "warning": "warning", "info": "note"}
    said = [
        paint(f"{n} {single[level] if n == 1 else plural[level]}", _COLOURS[level]) for level, n in counts.items() if n
    ]
    files = f"{result.files} file" + ("" if result.files == 1 else "s")
    head = ", ".join(said) if said else paint("no mistakes found", "green")
    fixable = sum(f.edit is not None for f in result.findings)
    rest = [f"{rules} rule" + ("" if rules == 1 else "s")]
    rest += [f"{len(result.skips)} not run (--aws, or on a node)"] if result.skips else []
    rest += [f"{result.ignored} ignored by comment"] if result.ignored else []
    rest += [f"{fixable} fixable with --fix"] if fixable else []
    return f"{head} in {files} {paint('· ' + ' · '.join(rest), 'dim')}"
