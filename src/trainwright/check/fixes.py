"""Applying the safe fixes: text is replaced in place, so comments and layout stay. A file is written
whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainwright.check.finding import Edit, Finding
from trainwright.files import write_whole


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


def fix_files(findings: Iterable[Finding]) -> dict[str, int]:
    """Apply every finding's edit to its file; returns how many edits each file got. Standard input is left alone."""
    by_file: dict[str, list[Edit]] = {}
    for finding in findings:
        if finding.edit is not None and finding.file != "<stdin>":
            by_file.setdefault(finding.file, []).append(finding.edit)
    for name, edits in by_file.items():
        path = Path(name)
        # Bytes, because text mode would turn Windows line ends into plain ones; a byte-order mark is no column.
        text = path.read_bytes().decode("utf-8")
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        write_whole(path, mark + apply_edits(text.removeprefix(mark), edits))
    return {name: len(edits) for name, edits in by_file.items()}
