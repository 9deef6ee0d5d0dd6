"""Applying the safe fixes: text is replaced in place, so comments and layout stay. A file is written
whole or not at all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainwright.check.finding import Edit, Finding
from trainwright.files import write_whole

_UNKNOWN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, which rules see as this:
_REPLACEMENT = "\ufffd"


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits made; of two that overlap the first wins, and the next run offers the other again."""
    starts = _line_starts(text)
    pieces: list[str] = []
    done = 0
    for begin, end, new in sorted({(_offset(starts, e, True), _offset(starts, e, False), e.text) for e in edits}):
        if begin < done:
            continue
        pieces += [text[done:begin], new]
        done = end
    return "".join([*pieces, text[done:]])


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(starts: list[int], edit: Edit, begin: bool) -> int:
    line, column = (edit.span.line, edit.span.column) if begin else (edit.span.end_line, edit.span.end_column)
    return starts[min(line, len(starts)) - 1] + column - 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """What was changed in one file."""

    name: str
    count: int
    diff: str


def fix_files(findings: Iterable[Finding], unsafe: bool = False) -> list[Fixed]:
    """Apply the edits of findings to their files. Standard input is not changed."""
    by_file: dict[str, list[Edit]] = {}
    for finding in findings:
        if finding.edit is not None and finding.file != "<stdin>" and (unsafe or finding.edit.safe):
            by_file.setdefault(finding.file, []).append(finding.edit)
    done = []
    for name, edits in by_file.items():
        path = Path(name)
        # Bytes, because text mode would turn Windows line ends into plain ones; a byte-order mark is no column.
        # Bytes that are not UTF-8 stay what they are.
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
        if _UNKNOWN.search(text):
            edits = [edit for edit in edits if _REPLACEMENT not in edit.text]
            if not edits:
                continue
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        changed = mark + apply_edits(text.removeprefix(mark), edits)
        write_whole(path, changed)
        done.append(Fixed(name, len(edits), _diff(name, text, changed)))
    return done


def _diff(name: str, before: str, after: str) -> str:
    old, new = (_shown(text).splitlines(keepends=True) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name.lstrip('/')}", f"b/{name.lstrip('/')}", n=1)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _shown(text: str) -> str:
    return text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
