"""Terraform's HCL with positions, as far as rules need it: blocks, attributes, literals. What is not a literal (a
reference, a call, a template) is kept as text and counts as unknown."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.spec.source import MAX_DEPTH, MAX_NODES, WHOLE_FILE, Node, SourceError, Span, UnusualError

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_INLINE = re.compile(r"(?:[ \t\r]+|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w-]*")  # letters of any language
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?(?![\w.])")
_STRING = re.compile(r'"(?:[^"\\$%\n]|\\.|\$(?!\{)|%(?!\{))*"')
_HEREDOC = re.compile(r"<<-?\s*([A-Za-z_]\w*)[ \t]*\r?\n")
_RANGE = re.compile(r"\$\{range\((\d+ *, *)?[1-9]\d*\)\}$")
# A list, a map or a number that has a name: `local.cards`, `range(var.cards)`, `toset(local.cards)`.
_NAMED = re.compile(r"\$\{(?:toset\(|keys\(|range\((?P<first>\d+ *, *)?|)(?P<name>(?:local|var)\.[\w-]+)\)?\}$")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_GOES_ON = (".", "(", "[")  # `local.names["a"]`
_IN_NAME = re.compile(r"[\w-]")
_WHERE = "see what `terraform validate` says: it may read more than this check does"
_AFTER_VALUE = re.compile(r"\s*($|[\n,\]}#]|//|/\*)")


@dataclass(frozen=True, slots=True)
class Block:
    """`resource "aws_x" "name" { … }`: its type, its labels, its body and how it is written."""

    kind: str
    labels: tuple[str, ...]
    body: Node
    span: Span
    text: str = ""

    @property
    def name(self) -> str:
        return self.labels[-1] if self.labels else self.kind


@dataclass(slots=True)
class Dynamic(Node):
    """`dynamic "name" { … }`: blocks whose number a value decides, with what is written in it."""

    block: Node | None = None

    def repeated(self, named: Callable[[str], Node | None] = lambda name: None) -> Node | None:
        """What each of the blocks holds, where there is certainly one: its list is written down and not empty, or
        `named` knows the local value or the variable that holds it."""
        over = self.block.get("for_each") if self.block is not None else None
        if self.block is None or over is None:
            return None
        certain = any(over.elements()) or _RANGE.match(over.text) is not None
        return self.block.get("content", 0) if certain or _is_filled(_NAMED.match(over.text), named) else None


def _is_filled(match: re.Match[str] | None, named: Callable[[str], Node | None]) -> bool:
    """Whether a name stands for a list or map with elements, or the range up to it for numbers."""
    value = named(match["name"]) if match is not None else None
    if match is None or value is None:
        return False
    if "range(" in match[0]:
        return isinstance(value.value, int) and value.value > int((match["first"] or "0").strip(" ,"))
    return (value.is_list or value.is_map) and any(one is not value for one in value.walk())


def parse_hcl(text: str, name: str) -> list[Block]:
    """The blocks of a file, in order."""
    return _Parser(text, name).blocks()


def parse_tfvars(text: str, name: str) -> Node:
    """The values that a .tfvars file assigns, as one map."""
    parser = _Parser(text, name)
    parser.blocks()
    return Node(parser.assigned, WHOLE_FILE, keys=parser.names)


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at, self.count = text, name, 0, 0
        self.assigned: dict[str, Node] = {}  # at the top level: of a .tfvars file
        self.names: dict[str, Span] = {}
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.open: list[int] = []  # where blocks, maps and lists begin that have not ended

    def blocks(self) -> list[Block]:
        blocks: list[Block] = []
        while not self.done():
            start = self.at
            kind = self.word()
            self.blank(inline=True)
            if self.text.startswith("=", self.at):
                self.at += 1
                self.names[kind] = self.span(start, start + len(kind))
                self.assigned[kind] = self.expression(0)
                continue
            labels, body = self.labels(), self.body(0)
            blocks.append(Block(kind, labels, body, self.span(start, start + len(kind)), self.text[start : self.at]))
        return blocks

    def done(self) -> bool:
        self.blank()
        return self.at >= len(self.text)

    def blank(self, inline: bool = False) -> None:
        match = (_INLINE if inline else _BLANK).match(self.text, self.at)
        self.at = match.end() if match is not None else self.at

    def word(self) -> str:
        start, match = self.at, _NAME.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        elif self.text.startswith('"', self.at):
            self.string()
        elif self.text.startswith("(", self.at):  # `(var.name) = value`
            self.over()
        else:
            raise self.error("a name is expected here")
        return self.text[start : self.at].strip('"')

    def key(self) -> str:
        """A name before a block or a value; in a map it may be any expression: `format("k-%s", var.name) = "owned"`."""
        start, number = self.at, _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
        else:
            self.word()
        while self.text[self.at : self.at + 1] in _GOES_ON:
            self.over()
        return self.text[start : self.at].strip('"')

    def over(self) -> None:
        """Over a dot with its name, a number, or brackets with all that is in them."""
        outside = len(self.open)
        while self.at < len(self.text):
            self.step()
            if len(self.open) == outside and _IN_NAME.match(self.text, self.at) is None:
                return

    def step(self) -> None:
        """Over one character of an expression, or a text, a here-document or a comment in it."""
        char, before = self.text[self.at], self.at
        heredoc = _HEREDOC.match(self.text, self.at) if char == "<" else None
        if char == '"':
            self.string()
        elif heredoc is not None:
            self.at = self.end_of(heredoc)
        elif char == "#" or self.text.startswith(("//", "/*"), self.at):
            self.blank(inline=True)
            if self.at == before:
                raise self.refused("a comment is not ended", "end it with `*/`")
        elif char in "([{":
            self.open.append(self.at)
            self.at += 1
        elif char in ")]}" and char != _CLOSES[self.text[self.open[-1]]]:
            raise self.not_closed()
        else:
            if char in ")]}":
                self.open.pop()
            self.at += 1

    def end_of(self, heredoc: re.Match[str]) -> int:
        end = re.compile(rf"^[ \t]*{heredoc[1]}[ \t]*\r?$", re.MULTILINE).search(self.text, heredoc.end())
        if end is None:
            raise self.refused(
                f"the text that {heredoc[1]} ends is not ended", f"write {heredoc[1]} on a line of its own"
            )
        return end.end()

    def labels(self) -> tuple[str, ...]:
        labels: list[str] = []
        while True:
            self.blank(inline=True)
            if self.text.startswith("{", self.at):
                return tuple(labels)
            labels.append(self.word())

    def body(self, depth: int) -> Node:
        """`{ … }`: attributes, and nested blocks as lists of maps."""
        self.deeper(depth)
        node = Node({}, self.span(self.at, self.at + 1))
        self.open.append(self.at)
        self.at += 1
        while True:
            self.blank()
            if self.text.startswith("}", self.at):
                self.at += 1
                self.open.pop()
                return node
            start = self.at
            key = self.key()
            key_span = self.span(start, self.at)
            self.blank(inline=True)
            if self.text[self.at : self.at + 1] in ("=", ":"):
                self.at += 1
                node.value[key] = self.expression(depth)
            else:
                labels = self.labels()
                inner = self.body(depth + 1)
                if key == "dynamic":  # its blocks are as many as a value says
                    key, inner = (
                        (labels[0] if labels else key),
                        Dynamic("${dynamic}", key_span, "${dynamic}", block=inner),
                    )
                held = node.value.setdefault(key, Node([], key_span))
                if held.is_list:
                    held.value.append(inner)
            node.keys.setdefault(key, key_span)
            self.blank(inline=True)
            if self.text.startswith(",", self.at):
                self.at += 1

    def expression(self, depth: int) -> Node:
        self.deeper(depth)
        self.blank(inline=True)
        start, first = self.at, self.text[self.at : self.at + 1]
        if first == "{" and not re.match(r"\{\s*for\b", self.text[self.at :][:40]):
            return self.whole(start, self.body(depth + 1))
        if first == "[" and not re.match(r"\[\s*for\b", self.text[self.at :][:40]):
            return self.whole(start, self.list(depth + 1))
        literal = _NUMBER.match(self.text, self.at) or _STRING.match(self.text, self.at)
        word = _NAME.match(self.text, self.at)
        if literal is None and word is not None and word[0] in ("true", "false", "null"):
            literal = word
        if literal is not None and _AFTER_VALUE.match(self.text, literal.end()):
            self.at = literal.end()
            return self.literal(literal[0], self.span(start, self.at))
        return self.unknown(start)

    def whole(self, start: int, node: Node) -> Node:
        """A map or list, unless an operator or an index follows it."""
        if _AFTER_VALUE.match(self.text, self.at):
            return node
        self.at = start
        return self.unknown(start)

    def list(self, depth: int) -> Node:
        node = Node([], self.span(self.at, self.at + 1))
        self.open.append(self.at)
        self.at += 1
        while True:
            self.blank()
            if self.text.startswith("]", self.at):
                self.at += 1
                self.open.pop()
                return node
            node.value.append(self.expression(depth))
            self.blank()
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith("]", self.at):
                raise self.error("a comma is expected here")

    def literal(self, text: str, span: Span) -> Node:
        if text.startswith('"'):
            plain = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
            return Node(plain, span, plain)
        if text in ("true", "false"):
            return Node(text == "true", span, text)
        if text == "null":
            return Node(None, span, text)
        return Node(float(text) if re.search(r"[.eE]", text) else int(text), span, text)

    def unknown(self, start: int) -> Node:
        """Any other expression, up to the end of the line outside brackets, texts and comments."""
        heredoc = _HEREDOC.match(self.text, self.at)
        if heredoc is not None:
            self.at = self.end_of(heredoc)
            return Node("${heredoc}", self.span(start, heredoc.end() - 1), "${heredoc}")
        outside = len(self.open)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in ")]}" and len(self.open) == outside:
                break
            if char in "\n," and len(self.open) == outside:
                break
            self.step()
        written = self.text[start : self.at].strip()
        if not written:
            raise self.error("a value is expected here")
        return Node(f"${{{written}}}", self.span(start, start + len(written)), f"${{{written}}}", "expression")

    def string(self) -> None:
        """Over a text, with the templates in it."""
        start = self.at
        self.at += 1
        depth = 0
        while self.at < len(self.text):
            two = self.text[self.at : self.at + 2]
            if two[:1] == "\\":
                self.at += 2
                continue
            if two in ("${", "%{"):
                depth += 1
                self.at += 2
                continue
            if depth and two[:1] == "}":
                depth -= 1
            elif depth and two[:1] == '"':
                self.string()
                continue
            elif not depth and two[:1] == '"':
                self.at += 1
                return
            self.at += 1
        self.at = start
        raise self.refused("a text is not ended", "close the quote")

    def deeper(self, depth: int) -> None:
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_NODES:
            raise self.error("the file nests too deeply or is too long")

    def place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self.starts, index)
        return line, index - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        return Span(*self.place(start), *self.place(max(start, end)))

    def error(self, what: str) -> SourceError:
        """Where a bracket is missing or too many, terraform refuses the file; of the rest it may read more."""
        char = self.text[self.at : self.at + 1]
        if self.open and (self.done() or (char in _CLOSES.values() and char != _CLOSES[self.text[self.open[-1]]])):
            return self.not_closed()
        if char in _CLOSES.values():
            return self.refused(f"a `{char}` that closes nothing", "remove it, or write what it closes above")
        return UnusualError(f"not read as HCL: {what}", self.name, self.span(self.at, self.at + 1), _WHERE)

    def not_closed(self) -> SourceError:
        """What is still open where its end is due: as terraform says, from where it begins."""
        self.at = self.open[-1]
        bracket = self.text[self.at]
        return self.refused(f"this `{bracket}` is not closed", f"write the `{_CLOSES[bracket]}` that is missing")

    def refused(self, what: str, fix: str) -> SourceError:
        return SourceError(f"not valid HCL: {what}", self.name, self.span(self.at, self.at + 1), fix)
