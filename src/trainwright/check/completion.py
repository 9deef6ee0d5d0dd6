"""What may be written at a place of a spec, from its JSON schema: keys of the map at hand, or values of a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

_KEY = re.compile(r"(?P<indent>\s*)(?P<dashes>(?:-\s+)*)(?P<key>[\w.-]+)\s*:(?P<rest>.*)$")
_ITEM = re.compile(r"(?P<indent>\s*)-\s")
_SPEC = re.compile(r"^(platform|queues|extends)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A key or a value, with what the schema says about it."""

    text: str
    about: str
    is_key: bool


def is_spec(text: str) -> bool:
    """Whether a text that may be half written looks like a spec of ours."""
    return _SPEC.search(text) is not None and "apiVersion:" not in text


@cache
def _schema() -> dict[str, Any]:
    from trainwright.spec.schema import schema

    return schema()


def proposals(text: str, line: int, column: int) -> list[Proposal]:
    """What fits at a line and column, both counted from 0."""
    lines = text.split("\n")
    written = lines[line][:column] if line < len(lines) else ""
    match = _KEY.match(written)
    path = _path(lines[:line], len(match["indent"] + match["dashes"]) if match is not None else _indent(written))
    if match is not None:
        values = [_values(shape) for shape in _at([*path, match["key"]])]
        return [Proposal(value, "", False) for group in values for value in group]
    keys: dict[str, Proposal] = {}
    for shape in _at(path):
        for name, child in shape.get("properties", {}).items():
            keys.setdefault(name, Proposal(name, child.get("description", ""), True))
    return list(keys.values())


def about(text: str, line: int, column: int) -> str:
    """What the schema says about the key at a place."""
    lines = text.split("\n")
    match = _KEY.match(lines[line]) if line < len(lines) else None
    if match is None or not match.start("key") <= column <= match.end("key"):
        return ""
    path = [*_path(lines[:line], len(match["indent"] + match["dashes"])), match["key"]]
    return next((shape["description"] for shape in _at(path, resolve=False) if shape.get("description")), "")


def _indent(written: str) -> int:
    match = re.match(r"\s*(?:-\s+)*", written)
    return match.end() if match is not None else 0


def _path(lines: list[str], indent: int) -> list[str]:
    """The keys that a place with this indent stands below, outermost first; `[]` is an element of a list."""
    path: list[str] = []
    for line in reversed(lines):
        match, item = _KEY.match(line), _ITEM.match(line)
        if item is not None and len(item["indent"]) < indent and (match is None or _own(match) >= indent):
            path.insert(0, "[]")
            indent = len(item["indent"]) + 1  # the list belongs to a key at or left of its dash
        if match is not None and _own(match) < indent and not match["rest"].split("#")[0].strip():
            path.insert(0, match["key"])
            indent = _own(match)
            if match["dashes"]:
                path.insert(0, "[]")
                indent = len(match["indent"]) + 1
        if indent == 0:
            break
    return path


def _own(match: re.Match[str]) -> int:
    """Where a line's key begins."""
    return len(match["indent"] + match["dashes"])


def _at(path: list[str], resolve: bool = True) -> list[dict[str, Any]]:
    """The shapes that the schema allows at a path."""
    shapes = list(_resolved(_schema()))
    for step in path:
        inner: list[dict[str, Any]] = []
        for shape in shapes:
            if step == "[]":
                child = shape.get("items")
            else:
                child = shape.get("properties", {}).get(step) or shape.get("additionalProperties")
            inner += [child] if isinstance(child, dict) else []
        last = step is path[-1] and not resolve
        shapes = inner if last else [one for child in inner for one in _resolved(child)]
    return shapes


def _resolved(shape: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """A shape with its references followed and its alternatives listed."""
    if depth > 8:
        return
    yield shape
    if "$ref" in shape:
        yield from _resolved(_schema()["$defs"][shape["$ref"].rpartition("/")[2]], depth + 1)
    for one in [*shape.get("anyOf", []), *shape.get("oneOf", []), *shape.get("allOf", [])]:
        yield from _resolved(one, depth + 1)


def _values(shape: dict[str, Any]) -> list[str]:
    if shape.get("type") == "boolean":
        return ["true", "false"]
    listed = shape.get("enum", [shape["const"]] if "const" in shape else [])
    return [str(value) for value in listed if value is not None]
