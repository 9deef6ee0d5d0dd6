"""YAML and JSON with positions: every key and value keeps the line and column it was written at. Hostile input
(alias bombs, deep nesting, huge or binary files, duplicate keys) is an error with a place, never a crash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from trainwright.errors import UserError
from trainwright.files import MAX_BYTES, read_regular

MAX_NODES = 200_000
MAX_DEPTH = 60
OWN_STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLACEHOLDER_BRACES = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# An escape in JSON: two surrogates that belong together, one alone, or any other.
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_PRIVATE = 0xE000 - 0xD800  # from the surrogates to as many private characters
_PRIVATE_PAIR = re.compile("[\ue000-\ue3ff][\ue400-\ue7ff]")
_FLOAT = re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$")


@dataclass(slots=True, unsafe_hash=True)
class Span:
    """A stretch of a file, counted from 1; the end column is one past the last character. It is not changed after it
    is made; not `frozen`, because a file has thousands and a frozen one takes four times as long to make."""

    line: int
    column: int
    end_line: int
    end_column: int
    source: str = ""  # the flag that the value was given by, where it stands in no file: `--nodes 2`
    file: str = ""  # the file it stands in, where that is not the file at hand: one that this one extends

    def at(self, path: str) -> str:
        """The place as messages show it: the flag, or the file with line and column."""
        return self.source or f"{self.file or path}:{self.line}:{self.column}"


WHOLE_FILE = Span(1, 1, 1, 1)


@dataclass(slots=True)
class Node:
    """One YAML value with its place. `value` is a scalar, a dict of nodes or a list of nodes."""

    value: Any
    span: Span
    text: str = ""  # a scalar as it was written, without quotes
    tag: str = ""  # a CloudFormation short form such as `Ref`, else empty
    keys: dict[str, Span] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def is_scalar(self) -> bool:
        return not isinstance(self.value, dict | list)

    def get(self, *path: str | int) -> Node | None:
        """The node at a path of keys and indexes, or None as soon as a step is missing."""
        node = self
        for step in path:
            value = node.value
            if isinstance(step, int):
                child = value[step] if isinstance(value, list) and step < len(value) else None
            else:
                child = value.get(step) if isinstance(value, dict) else None
            if child is None:
                return None
            node = child
        return node

    def items(self) -> Iterator[tuple[str, Node]]:
        """Keys and values of a map; nothing for anything else."""
        if isinstance(self.value, dict):
            yield from self.value.items()

    def elements(self) -> Iterator[Node]:
        """The elements of a list; nothing for anything else."""
        if isinstance(self.value, list):
            yield from self.value

    def key_span(self, key: str) -> Span:
        """Where a key of this map is written; the map itself when the key is not there."""
        return self.keys.get(key, self.span)

    def walk(self) -> Iterator[Node]:
        """This node and every node below it, in the order they are written."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            value = node.value
            if isinstance(value, dict):
                waiting += reversed(value.values())
            elif isinstance(value, list):
                waiting += reversed(value)

    def plain(self) -> Any:
        """The same data without positions."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def span_at(self, path: tuple[str | int, ...]) -> Span:
        """The place of a path, or of its deepest part that exists."""
        node: Node = self
        for step in path:
            child = node.get(step)
            if child is None:
                return node.key_span(step) if isinstance(step, str) else node.span
            node = child
        return node.span


class SourceError(UserError):
    """A file that cannot be read or parsed; `span` says where."""

    def __init__(self, what: str, path: str, span: Span = WHOLE_FILE, fix: str = "") -> None:
        super().__init__(what, where=f"{path}:{span.line}:{span.column}", fix=fix)
        self.path = path
        self.span = span


class LimitError(SourceError):
    """A file that its own program may well read, and that is too large or too deep to be read here."""


class UnusualError(LimitError):
    """A file that is written in a way that is not read here, and that its own program may well read."""


class RepeatedKeyError(SourceError):
    """A key that is written twice with different values: most programs read one of the two."""


def read_text(path: Path) -> str:
    """A file's text; too large, binary, missing and non-UTF-8 files are errors that say so."""
    name = str(path)
    if name.startswith(OWN_STREAMS):
        return read_stream(name)
    try:
        return decode(read_regular(path), name)
    except SourceError:
        raise
    except UserError as error:
        raise SourceError(error.what, name, fix=error.fix) from error


def read_stream(name: str) -> str:
    """The text of a pipe that this process was started with, such as a shell's `<(command)`."""
    try:
        with open(name, "rb") as stream:
            return bounded(stream.read(MAX_BYTES + 1), name)
    except OSError as error:
        raise SourceError(f"cannot read the file: {error.strerror or error}", name) from error


def bounded(data: bytes, name: str) -> str:
    """The text of a stream that was read up to one byte over the limit."""
    if len(data) > MAX_BYTES:
        raise LimitError(f"more than {MAX_BYTES // 2**20} MiB; at most that much is read", name)
    return decode(data, name)


def decode(data: bytes, name: str) -> str:
    """Bytes as text, with the place of the first byte that is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise SourceError(
            f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})",
            name,
            Span(line, column, line, column + 1),
            fix="save it as UTF-8",
        ) from error
    if "\x00" in text:
        raise SourceError("the file holds NUL bytes: it is not text", name)
    return text


def parse(text: str, name: str) -> list[Node]:
    """The documents of a YAML or JSON text. `${VAR}` placeholders parse wherever they stand."""
    if len(text) > MAX_BYTES:
        raise LimitError(f"the text is larger than {MAX_BYTES // 2**20} MiB", name)
    if text.lstrip()[:1] in ("{", "["):
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not; columns stay the same
        text = _without_surrogates(text, name)
    if _too_deep(text):
        raise LimitError(f"the file nests deeper than {MAX_DEPTH} levels", name)
    try:
        return _compose(text, name)
    except yaml.YAMLError as error:
        # A `${VAR}` inside `[...]` is not YAML: swap its braces for letters of the same width and try once more.
        swapped = _PLACEHOLDER_BRACES.sub(lambda m: f"$\u00ab{m[1]}\u00bb", text)
        if swapped != text:
            try:
                return _compose(swapped, name)
            except yaml.YAMLError:
                pass  # the first error, about the text as it was written, is the one to show
        raise _source_error(error, text, name) from error


def _without_surrogates(text: str, name: str) -> str:
    """JSON writes a character beyond U+FFFF as two escapes, surrogates, which YAML refuses. They pass the parser as
    private characters of the same width, so that columns stay the same; `_written` puts them together."""

    def other(match: re.Match[str]) -> str:
        high, low, alone = match.groups()
        if alone:
            line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
            raise SourceError(
                f"{match[0]} is half a character (a surrogate without the other half)",
                name,
                Span(line, column, line, column + len(match[0])),
                "write both halves, such as \\ud83d\\ude00, or the character itself",
            )
        return f"\\u{int(high, 16) + _PRIVATE:04x}\\u{int(low, 16) + _PRIVATE:04x}" if high else match[0]

    return _ESCAPE.sub(other, text)


def _written(raw: yaml.ScalarNode) -> str:
    """A scalar's text as its author meant it: what was swapped to get past the parser is swapped back."""
    text: str = raw.value.replace("$\u00ab", "${").replace("\u00bb", "}")
    if raw.style != '"':
        return text
    return _PRIVATE_PAIR.sub(lambda m: chr(0x10000 + (ord(m[0][0]) - 0xE000) * 0x400 + ord(m[0][1]) - 0xE400), text)


def _compose(text: str, name: str) -> list[Node]:
    try:
        roots = list(yaml.compose_all(text, Loader=_LOADER))
    except RecursionError as error:
        raise LimitError("the file nests too deeply", name) from error
    build = _Builder(name)
    return [build.node(root, 0) for root in roots if root is not None]


def _too_deep(text: str) -> bool:
    """Whether brackets nest past any real file: libyaml recurses on the C stack, so this is asked first."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest > 10 * MAX_DEPTH


def _source_error(error: yaml.YAMLError, text: str, name: str) -> SourceError:
    mark = getattr(error, "problem_mark", None)
    span = Span(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2) if mark else WHOLE_FILE
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    line = text.splitlines()[span.line - 1 : span.line]
    tab = any(re.match(r" *\t", one) for one in line)
    fix = "YAML indents with spaces, not tabs" if tab else "correct the YAML at this place"
    return SourceError(f"not valid YAML: {problem}" + (f" ({context})" if context else ""), name, span, fix)


class _Builder:
    """Turns PyYAML's nodes into ours, within limits, resolving merge keys and aliases."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.open: set[int] = set()

    def node(self, raw: yaml.Node, depth: int) -> Node:
        self.count += 1
        span = _span(raw)
        if self.count > MAX_NODES:
            raise LimitError(f"the file expands to more than {MAX_NODES:,} values (an alias bomb?)", self.name, span)
        if depth > MAX_DEPTH:
            raise LimitError(f"the file nests deeper than {MAX_DEPTH} levels", self.name, span)
        if isinstance(raw, yaml.ScalarNode):
            text = _written(raw)
            return Node(_scalar(raw.tag, text, not raw.style), span, text, _short(raw.tag))
        if id(raw) in self.open:
            raise SourceError("an alias refers to itself", self.name, span)
        self.open.add(id(raw))
        try:
            if isinstance(raw, yaml.SequenceNode):
                return Node([self.node(child, depth + 1) for child in raw.value], span, "", _short(raw.tag))
            return self._map(raw, span, depth)
        finally:
            self.open.discard(id(raw))

    def _map(self, raw: yaml.Node, span: Span, depth: int) -> Node:
        result = Node({}, span, "", _short(raw.tag))
        merged: list[Node] = []
        for key_node, value_node in raw.value:
            key_span = _span(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise SourceError("a key must be plain text", self.name, key_span, "quote the key")
            key = _written(key_node)
            value = self.node(value_node, depth + 1)
            if key == "<<" and key_node.tag.endswith(":merge"):
                merged += list(value.elements()) if value.is_list else [value]
                continue
            if key in result.value and not same_value(result.value[key], value):
                first = result.keys[key].line
                raise RepeatedKeyError(
                    f"the key {key!r} is written twice (first on line {first})",
                    self.name,
                    key_span,
                    "keep one of the two; most YAML readers silently keep the last",
                )
            result.value[key] = value
            result.keys[key] = key_span
        for base in merged:
            for key, value in base.items():
                if key not in result.value:
                    result.value[key] = value
                    result.keys[key] = base.key_span(key)
        return result


def same_value(one: Node, other: Node) -> bool:
    """Whether a key that is written twice has one value: whatever a reader keeps, it is that."""
    if one.is_scalar and other.is_scalar:
        return one.text == other.text and type(one.value) is type(other.value)
    return one.is_scalar is other.is_scalar and one.plain() == other.plain()


def _span(raw: yaml.Node) -> Span:
    start, end = raw.start_mark, raw.end_mark
    if end.line > start.line and end.column == 0 and not isinstance(raw, yaml.ScalarNode):
        # Block collections end where the next token starts; point at their first line instead.
        return Span(start.line + 1, start.column + 1, start.line + 1, start.column + 2)
    return Span(start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def _short(tag: str) -> str:
    return tag[1:] if tag.startswith("!") and len(tag) > 1 else ""


@lru_cache(maxsize=4096)
def _scalar(tag: str, text: str, plain: bool = True) -> Any:
    """A scalar's Python value; YAML 1.1 as the cluster tools read it, and a plain `1e-4` as the number people mean."""
    kind = tag.rpartition(":")[2]
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("true", "yes", "on")
        if kind == "int":
            return _integer(text.replace("_", ""))
        if kind == "float" or (plain and kind == "str" and _FLOAT.match(text)):
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    return text


def _integer(text: str) -> int | str:
    if ":" in text:
        return text  # YAML 1.1 reads 12:30 as base 60; nobody means that
    body = text.lstrip("+-")
    if len(body) > 1 and body.startswith("0") and body.isdigit():
        return int(text, 8) if set(body) <= set("01234567") else text
    return int(text, 0)
