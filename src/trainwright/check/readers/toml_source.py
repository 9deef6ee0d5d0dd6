"""TOML with positions: tomllib reads the values, and a scan of the lines finds where each key is written."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from trainwright.spec.source import WHOLE_FILE, Node, SourceError, Span

_TABLE = re.compile(r"\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?P<name>[\w.\"'-]+)\s*=\s*(?P<value>.*?)\s*$")
_COMMENT = re.compile(r"(\"[^\"]*\"|'[^']*'|[^#\"'])*")


def parse_toml(text: str, name: str) -> Node:
    """The document as a node; what stands in an array of tables or an inline table has the place of its key."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = re.search(r"at line (\d+), column (\d+)", str(error))
        line, column = (int(match[1]), int(match[2])) if match else (1, 1)
        what = str(error).partition(" (at ")[0]
        span = Span(line, column, line, column + 1)
        raise SourceError(f"not valid TOML: {what}", name, span, "correct the TOML at this place") from error
    return _node(data, _places(text), "", WHOLE_FILE)


def _places(text: str) -> dict[str, tuple[Span, Span]]:
    """Dotted key -> where the key and where its value is written."""
    places: dict[str, tuple[Span, Span]] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        head, pair = _TABLE.match(line), _KEY.match(line)
        if head is not None and pair is None:
            table = _plain(head["name"]) + "."
            span = Span(number, head.start("name") + 1, number, head.end("name") + 1)
            places.setdefault(table[:-1], (span, span))
        elif pair is not None:
            written = _COMMENT.match(pair["value"])
            length = len((written[0] if written else pair["value"]).rstrip())
            start = pair.start("value") + 1
            places.setdefault(
                table + _plain(pair["name"]),
                (
                    Span(number, pair.start("name") + 1, number, pair.end("name") + 1),
                    Span(number, start, number, start + max(1, length)),
                ),
            )
    return places


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _node(value: Any, places: dict[str, tuple[Span, Span]], path: str, span: Span) -> Node:
    if isinstance(value, dict):
        node = Node({}, span)
        for key, child in value.items():
            inner = f"{path}.{key}" if path else key
            key_span, value_span = places.get(inner, (span, span))
            node.value[key] = _node(child, places, inner, value_span)
            node.keys[key] = key_span
        return node
    if isinstance(value, list):
        return Node([_node(child, places, path, span) for child in value], span)
    return Node(value, span, str(value).lower() if isinstance(value, bool) else str(value))
