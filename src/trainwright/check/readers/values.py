"""Small helpers every reader uses to lift YAML nodes into located values."""

from __future__ import annotations

import re
from typing import Any

from trainwright.check.model import Value
from trainwright.spec.source import Node, Span

# A value that somebody still has to fill in: `${VAR}`, PLACEHOLDER_X, <your-thing>, cr-xxxxxxxx. Stated, but not known.
PLACEHOLDER = re.compile(
    r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|PLACEHOLDER\w*|<[A-Za-z][\w .-]*>|\b[a-z]+-x{4,}\b|X{4,}|REMOVE_THIS_LINE|^NA$"
    r"|^(?:acl|ami|cr|eni|fs|rtb|sg|subnet|vpc)-(?:id|ID)$"
    r"|^\{[A-Z][A-Z0-9_]*\}$"
    r"|stack-output:[a-z0-9]"  # ours: what a stack of the plan will give
)


def is_placeholder(text: str) -> bool:
    """Whether a value is, or contains, something that must still be replaced."""
    return PLACEHOLDER.search(text) is not None


# Words that a script replaces: NUM_NODES, num_nodes, __NODES__, %NODES%, @NODES@, ((nodes)), [[nodes]].
_TO_REPLACE = re.compile(r"[A-Z][A-Z0-9_-]*|[A-Za-z0-9]*_[\w-]*|%\w+%|@\w+@|\(\(.+\)\)|\[\[.+\]\]|<.+>|#\{.+\}#?")
_MEANT = {"true", "false", "yes", "no", "on", "off", "none", "null", "nan", "inf"}


def is_to_fill_in(node: Node) -> bool:
    """Whether a value of a type that cannot stand here is one that a script replaces: a word such as NUM_NODES,
    `{name}` of Python's format (to YAML a map of a key without a value) or `[NAME]` (a list)."""
    if node.is_map:
        return len(node.value) == 1 and all(
            child.value is None and not child.text and _follows(node, node.key_span(name))
            for name, child in node.items()
        )
    if node.is_list:
        return len(node.value) == 1 and _follows(node, node.value[0].span) and is_to_fill_in(node.value[0])
    words = node.text.strip()
    return isinstance(node.value, str) and words.lower() not in _MEANT and _TO_REPLACE.fullmatch(words) is not None


def _follows(bracket: Node, inner: Span) -> bool:
    """Whether something is written directly behind the bracket that opens a map or list."""
    return (inner.line, inner.column) == (bracket.span.line, bracket.span.column + 1)


def value_at(node: Node | None, *path: str | int) -> Value[Any] | None:
    """The located value at a path, whatever its type; None when it is not written."""
    parent = node.get(*path[:-1]) if node is not None and path else node
    child = parent.get(path[-1]) if parent is not None and path else parent
    if child is None:
        return None
    key = parent.keys.get(path[-1]) if parent is not None and path and isinstance(path[-1], str) else None
    return value_of(child, key)


def value_of(node: Node, key: Any = None) -> Value[Any]:
    """A node as a located value. Intrinsic functions and placeholders are stated, but not known."""
    known = not node.tag and not node.is_map and not (node.is_scalar and is_placeholder(node.text))
    return Value(node.plain() if not node.is_scalar else node.value, node.span, node.text, key, known)


def text_at(node: Node | None, *path: str | int) -> Value[str] | None:
    """A text value, as it was written (so that 1.30 stays 1.30)."""
    value = value_at(node, *path)
    if value is None or value.value is None or isinstance(value.value, list):
        return None
    return value.meaning(value.text)


def int_at(node: Node | None, *path: str | int) -> Value[int] | None:
    """A whole number; a value of another type is stated but not known."""
    return as_int(value_at(node, *path))


def bool_at(node: Node | None, *path: str | int) -> Value[bool] | None:
    """A truth value; a value of another type is stated but not known."""
    return as_bool(value_at(node, *path))


def as_int(value: Value[Any] | None) -> Value[int] | None:
    if value is None or value.value is None:
        return None
    number = to_int(value.value)
    return value.meaning(number or 0, known=number is not None)


def as_bool(value: Value[Any] | None) -> Value[bool] | None:
    if value is None or value.value is None:
        return None
    lowered = str(value.value).lower()
    return value.meaning(lowered == "true", known=lowered in ("true", "false"))


def texts_at(node: Node | None, *path: str | int) -> list[Value[str]]:
    """The texts of a list (or of a single value)."""
    child = node.get(*path) if node is not None else None
    if child is None:
        return []
    elements = list(child.elements()) if child.is_list else [child]
    return [
        Value(e.text, e.span, e.text, None, value_of(e).known) for e in elements if e.is_scalar and e.value is not None
    ]


def to_int(value: Any) -> int | None:
    """A whole number from a YAML value; text of digits counts."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        return int(value)
    return None


def map_values(node: Node | None) -> dict[str, Value[Any]]:
    """A map's values by key, each with its place and the place of its key."""
    return {key: value_of(child, node.keys.get(key)) for key, child in node.items()} if node is not None else {}
