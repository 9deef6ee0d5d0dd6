"""Findings as people read them: the position, an excerpt with a caret, the reason, the fix, and one summary line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.check.causes import message_with_places
from trainwright.check.engine import Result
from trainwright.check.finding import Finding
from trainwright.check.registry import Rule

Paint = Callable[[str, str], str]

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_WIDEST_EXCERPT = 110
_MANY = 50  # findings, beyond which the report is grouped
_NOTES = 20  # lines of notes below the findings that count
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PICTURES = {code: 0x2400 + code for code in range(32)}  # of an excerpt: one column each, so that the caret fits
_NARROWEST = 20  # columns left for words, below which wrapping does not help


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


def render(result: Result, rules: dict[str, Rule], colour: bool, width: int | None = None, full: bool = False) -> str:
    """The whole report, wrapped to the terminal's `width`. A pipe gets whole lines. Unless `full`, notes are one line
    each below the rest, and many findings are grouped by file."""
    paint = _Painter(colour)
    counting = [finding for finding in result.findings if full or finding.level != "info"]
    if not full and len(counting) > _MANY:
        return _grouped(result, rules, paint)
    shown_reasons: set[str] = set()
    blocks = []
    for finding in counting:
        why = "" if finding.why in shown_reasons else finding.why
        shown_reasons.add(why)
        blocks.append("\n".join(_block(finding, result.text_of(finding.file), why, paint, width)))
    notes = [] if full else [finding for finding in result.findings if finding.level == "info"]
    blocks += ["\n".join(_note_lines(notes, paint))] if notes else []
    return "\n\n".join([*blocks, summary(result, paint)])


def _note_lines(notes: list[Finding], paint: Paint) -> Iterator[str]:
    """What the files do not decide by themselves, in short: it must not hide what they do."""
    yield f"{paint('notes', 'cyan')} that do not fail the check; `--format full` shows their lines, reasons and fixes"
    for note in notes[:_NOTES]:
        place = visible(note.span.at(note.file))
        yield f"  {place}  {paint(note.code, 'bold')}  {visible(message_with_places(note))}"
    if len(notes) > _NOTES:
        yield f"  and {len(notes) - _NOTES} more"


def _grouped(result: Result, rules: dict[str, Rule], paint: Paint) -> str:
    lines: list[str] = []
    current = ""
    for finding in result.findings:
        if finding.file != current:
            current = finding.file
            lines += ["", paint(visible(current), "bold")] if lines else [paint(visible(current), "bold")]
        place = f"{finding.span.line}:{finding.span.column}"
        level = paint(f"{finding.level:7}", _COLOURS[finding.level])
        lines.append(f"  {place:>8}  {level} {finding.code}  {visible(message_with_places(finding))}")
    lines += ["", *counted(result, rules), "", "`--format full` shows the lines, the reasons and the fixes"]
    return "\n".join([*lines, summary(result, paint)])


def counted(result: Result, rules: dict[str, Rule]) -> list[str]:
    """A table of findings by rule."""
    from trainwright.check.formats import statistics

    return [f"{row['count']:>6}  {row['level']:7} {row['code']}  {row['title']}" for row in statistics(result, rules)]


def _block(finding: Finding, text: str, why: str, paint: Paint, width: int | None) -> Iterator[str]:
    place = visible(finding.span.at(finding.file))
    level = paint(finding.level, _COLOURS[finding.level])
    first, *rest = _wrapped(visible(message_with_places(finding)), len(f"{finding.level} {finding.code} "), width)
    yield f"{level} {paint(finding.code, 'bold')} {first}"
    yield from (f"    {line}" for line in rest)
    gutter = max(3, len(str(finding.span.line)))
    yield f"{' ' * gutter}{paint('╭─', 'dim')} {paint(place, 'bold')}"
    lines = text.splitlines()
    if 0 < finding.span.line <= len(lines):
        yield from _excerpt(finding, lines, gutter, paint, min(_WIDEST_EXCERPT, (width or 200) - gutter - 6))
    bar = f"{' ' * gutter}{paint('│', 'dim')}"
    if why:
        first, *rest = _wrapped(why, gutter + 7, width)
        yield f"{bar} {paint('why:', 'dim')} {first}"
        yield from (f"{bar}      {line}" for line in rest)
    if finding.fix:
        label = "fix:"
        if finding.edit is not None:
            label = "fix (--fix does it):" if finding.edit.safe else "fix (--unsafe-fixes does it):"
        first, *rest = _wrapped(finding.fix, gutter + len(label) + 4, width)
        yield f"{' ' * gutter}{paint('╰─', 'dim')} {paint(label, 'fix')} {first}"
        yield from (f"{' ' * (gutter + len(label) + 4)}{line}" for line in rest)


def visible(text: str) -> str:
    """A text whose control characters a terminal would obey, as escapes."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _wrapped(text: str, taken: int, width: int | None) -> list[str]:
    """The text wrapped to the width that is left."""
    if width is None or width - taken < _NARROWEST:
        return [text]
    return textwrap.wrap(text, width - taken, break_long_words=False, break_on_hyphens=False) or [text]


def _excerpt(finding: Finding, lines: list[str], gutter: int, paint: Paint, widest: int) -> Iterator[str]:
    """The line before, for context, the line itself, and a caret under the value."""
    number = finding.span.line
    before = lines[number - 2].expandtabs(1).translate(_PICTURES) if number > 1 else ""
    line = lines[number - 1].expandtabs(1).translate(_PICTURES)
    first = max(0, finding.span.column - widest + 20)
    end = finding.span.end_column if finding.span.end_line == number else len(line) + 1
    width = max(1, min(end, len(line) + 1, first + widest) - finding.span.column)
    if before.strip():
        yield f"{paint(f'{number - 1:>{gutter}}│', 'dim')} {paint(_cut(before, first, widest), 'dim')}"
    yield f"{paint(f'{number:>{gutter}}│', 'dim')} {_cut(line, first, widest)}"
    lead = finding.span.column - 1 - first + (2 if first else 0)
    caret = " " * lead + paint("^" * width, _COLOURS[finding.level])
    yield f"{' ' * gutter}{paint('│', 'dim')} {caret}"


def _cut(line: str, first: int, widest: int) -> str:
    start = "… " if first else ""
    shown = line[first : first + widest]
    return f"{start}{shown}" + (" …" if len(line) > first + widest else "")


def summary(result: Result, paint: Paint) -> str:
    """One line: counts of findings and files, and what was skipped."""
    counts = {level: sum(f.level == level for f in result.findings) for level in _COLOURS}
    plural = {"error": "errors", "warning": "warnings", "info": "notes"}
    single = {"error": "error", "warning": "warning", "info": "note"}
    said = [
        paint(f"{n} {single[level] if n == 1 else plural[level]}", _COLOURS[level]) for level, n in counts.items() if n
    ]
    files = f"{result.files} file" + ("" if result.files == 1 else "s")
    head = ", ".join(said) if said else paint("no mistakes found", "green") if result.files else "nothing to check"
    if not said and not result.rules and result.skips:
        head = "no rule was run"
    fixable = sum(f.edit is not None and f.edit.safe for f in result.findings)
    rest = [f"{result.rules} rule" + ("" if result.rules == 1 else "s")]
    rest += [f"{len(result.skips)} not run ({_flags(result)})"] if result.skips else []
    rest += [f"{result.templates} template" + ("" if result.templates == 1 else "s")] if result.templates else []
    rest += [f"could not be parsed: {visible(_some(result.unread))}"] if result.unread else []
    rest += [f"{result.ignored} ignored by comment"] if result.ignored else []
    rest += [f"{result.ignored_by_settings} ignored by per-file-ignores"] if result.ignored_by_settings else []
    rest += [f"{fixable} fixable with --fix"] if fixable else []
    return f"{head} in {files} {paint('· ' + ' · '.join(rest), 'dim')}"


def _flags(result: Result) -> str:
    """The options under which the rest of the rules would run."""
    return ", ".join(flag for flag in ("--aws", "--node") if any(flag in skip.reason for skip in result.skips))


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
