"""Text of a shell script and the position of each of its characters. A script may be a file, an element of a
YAML list, a block inside a manifest or a string inside another script; findings point into the file all the same."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from trainwright.spec.source import Node, Span


@dataclass(slots=True)
class Source:
    """A text in runs of characters that stand side by side in the file."""

    text: str
    indexes: list[int] = field(default_factory=list)  # where each run starts in the text
    places: list[tuple[int, int]] = field(default_factory=list)  # line and column of each run
    fixed: Span | None = None  # where positions inside the text are lost, the whole stretch
    outer: frozenset[int] = frozenset()  # places of variables that the shell around this one expands
    defaults: frozenset[int] = frozenset()  # places of texts that are only the default of a variable around it

    def place(self, index: int) -> tuple[int, int]:
        if self.fixed is not None:
            return self.fixed.line, self.fixed.column
        run = max(0, bisect_right(self.indexes, index) - 1)
        line, column = self.places[run]
        return line, column + index - self.indexes[run]

    def span(self, start: int, end: int) -> Span:
        if self.fixed is not None:
            return self.fixed
        line, column = self.place(start)
        end_line, end_column = self.place(end - 1) if end > start else (line, column - 1)
        return Span(line, column, end_line, end_column + 1)


def whole_text(text: str) -> Source:
    """A script that is the file itself."""
    return _lines(text, 1, 1)


def part_of(source: Source, start: int, end: int) -> Source:
    """A stretch of a source, every character at its place."""
    text = source.text[start:end]
    if source.fixed is not None:
        return Source(text, fixed=source.fixed)
    first = max(0, bisect_right(source.indexes, start) - 1)
    last = bisect_right(source.indexes, max(start, end - 1))
    indexes, places = [0], [source.place(start)]
    for run in range(first + 1, last):
        indexes.append(source.indexes[run] - start)
        places.append(source.places[run])
    return Source(text, indexes, places)


def of_node(node: Node, lines: list[str]) -> Source:
    """A script that a YAML value holds."""
    text, span = node.text, node.span
    line = lines[span.line - 1] if span.line <= len(lines) else ""
    opening = line[span.column - 1 : span.column]
    if opening == "|":
        return _block(text, span, lines)
    offset = 1 if opening in ("'", '"') else 0
    start = span.column - 1 + offset
    if "\n" not in text and line[start : start + len(text)] == text:
        return Source(text, [0], [(span.line, start + 1)])
    return Source(text, fixed=span)


def _block(text: str, span: Span, lines: list[str]) -> Source:
    indent = next((len(line) - len(line.lstrip()) for line in lines[span.line : span.end_line] if line.strip()), 0)
    return _lines(text, span.line + 1, indent + 1)


def _lines(text: str, line: int, column: int) -> Source:
    indexes, places, start = [], [], 0
    for number, content in enumerate(text.split("\n")):
        indexes.append(start)
        places.append((line + number, column))
        start += len(content) + 1
    return Source(text, indexes, places)
