"""JSON with positions. YAML is not quite a superset of JSON (`\\/`, tabs, long keys), so a JSON file is read by JSON's
own rules; a duplicate key is an error, because readers silently keep the last."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

from trainwright.spec.source import (
    MAX_DEPTH,
    MAX_NODES,
    WHOLE_FILE,
    LimitError,
    Node,
    RepeatedKeyError,
    SourceError,
    Span,
    same_value,
)

_BLANK = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity'
)  # as Python's json


def parse_json(text: str, name: str) -> Node:
    """The one value of a JSON text."""
    return Parser(text, name).document()


class Parser:
    """Reads a text from its beginning; `at` is how far it got."""

    of_two = "JSON readers silently keep the last"  # what becomes of a key that is written twice

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.at = 0
        self.count = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> Node:
        node = self.value(0)
        self.blank()
        if self.at < len(self.text):
            raise self.error("text after the end of the JSON value", "remove it")
        return node

    def value(self, depth: int) -> Node:
        self.blank()
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            what = f"more than {MAX_NODES:,} values, or nested deeper than {MAX_DEPTH} levels"
            raise LimitError(what, self.name, self.span(self.at, self.at))
        opening = self.text[self.at : self.at + 1]
        if opening == "{":
            return self.map(depth)
        if opening == "[":
            return self.list(depth)
        return self.scalar()

    def scalar(self) -> Node:
        match = _SCALAR.match(self.text, self.at)
        if match is None:
            raise self.error("not valid JSON: a value is expected here")
        value = self.json_value(match[0])
        span = self.span(match.start(), match.end())
        self.at = match.end()
        return Node(value, span, value if isinstance(value, str) else match[0])

    def json_value(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.error(f"not valid JSON: {error}") from error

    def list(self, depth: int) -> Node:
        start, values = self.at, []
        self.at += 1
        if not self.closed("]"):
            while True:
                values.append(self.value(depth + 1))
                if self.separator("]"):
                    break
        return Node(values, self.span(start, self.at))

    def map(self, depth: int) -> Node:
        start = self.at
        node = Node({}, WHOLE_FILE)
        self.at += 1
        if not self.closed("}"):
            while True:
                self.pair(node, depth)
                if self.separator("}"):
                    break
        node.span = self.span(start, self.at)
        return node

    def pair(self, node: Node, depth: int) -> None:
        self.blank()
        key = self.key()
        self.blank()
        if self.text[self.at : self.at + 1] != ":":
            raise self.error("not valid JSON: a colon is expected here")
        self.at += 1
        value = self.value(depth + 1)
        if key.value in node.value and not same_value(node.value[key.value], value):
            what = f"the key {key.value!r} is written twice (first on line {node.keys[key.value].line})"
            raise RepeatedKeyError(what, self.name, key.span, f"keep one of the two; {self.of_two}")
        node.keys[key.value] = key.span
        node.value[key.value] = value

    def key(self) -> Node:
        if self.text[self.at : self.at + 1] != '"':
            raise self.error("not valid JSON: a key in double quotes is expected here")
        return self.scalar()

    def closed(self, bracket: str) -> bool:
        self.blank()
        if self.text[self.at : self.at + 1] == bracket:
            self.at += 1
            return True
        return False

    def separator(self, bracket: str) -> bool:
        """Pass a comma, or the closing bracket (True)."""
        self.blank()
        char = self.text[self.at : self.at + 1]
        if char not in (",", bracket) or not char:
            raise self.error(f"not valid JSON: a comma or {bracket} is expected here")
        self.at += 1
        return char == bracket

    def blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self.starts, index)
        return line, index - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        return Span(*self.place(start), *self.place(end))

    def error(self, what: str, fix: str = "correct the JSON at this place") -> SourceError:
        return SourceError(what, self.name, self.span(self.at, min(self.at + 1, len(self.text))), fix)
