"""What the words of a script stand for: variables that were given a constant are filled in and keep the place of that
constant; what only a running shell can know stays written as it is and is marked unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainwright.check.model import Value
from trainwright.check.readers.shell_source import Source, part_of
from trainwright.check.readers.shell_words import Piece, Word, scan
from trainwright.spec.source import Span

MAX_DEPTH = 8
MAX_PARTS = 2000  # a variable that doubles itself must not fill the memory
_EXPRESSION = re.compile(
    r"(?P<name>[A-Za-z_]\w*|\d+)(?P<index>\[[^\]]*\])?(?P<operator>:?[-=?+]|[%#/^,@:].*)?(?P<rest>.*)\Z", re.S
)
_ARITHMETIC = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")


@dataclass(slots=True)
class Part:
    """A part of an expanded word. `variable` names what an unknown part stands for."""

    text: str
    source: Source
    start: int
    end: int
    known: bool = True
    variable: str = ""
    by_batch: bool = False  # expanded by the batch script itself, before any task starts
    quoted: bool = False
    exact: bool = True  # the text is the source's own, character for character
    use: Span | None = None  # where the variable is written that this text comes from
    default: bool = False  # of `${NAME:-text}`, where nothing in the script sets NAME

    @property
    def span(self) -> Span:
        return self.source.span(self.start, self.end)

    def cut(self, start: int, end: int) -> Part:
        if not self.exact:
            return self
        return replace(self, text=self.text[start:end], start=self.start + start, end=self.start + end)


Parts = list[Part]


def value_of(parts: Parts, place: Span) -> Value[str]:
    """Parts as one located value: where it was written when that is one place, else where it is used."""
    text = joined(parts)
    span = parts[0].span if len(parts) == 1 else place_of(parts, place)
    return Value(text, span, text, None, all(part.known for part in parts), any(part.default for part in parts))


def joined(parts: Parts) -> str:
    """The text of parts as one word."""
    return "".join(_texts(parts))


def _texts(parts: Parts) -> list[str]:
    """The text of each part; `${name}_x` keeps its braces, without which it would be another variable."""
    texts = [part.text for part in parts]
    for index, (part, following) in enumerate(zip(parts, texts[1:], strict=False)):
        glued = following[:1].isalnum() or following.startswith("_")
        if part.variable and part.text == f"${part.variable}" and glued:
            texts[index] = "${" + part.variable + "}"
    return texts


def place_of(parts: Parts, place: Span) -> Span:
    """Where a word of several parts is written, from its first part to its last."""
    if not parts:
        return place
    first, last = parts[0].use or parts[0].span, parts[-1].use or parts[-1].span
    if first.line == last.end_line and first.column <= last.column:
        return Span(first.line, first.column, last.end_line, last.end_column)
    return first


@dataclass(slots=True)
class Variables:
    """Names and what they hold at this point of the script; None: assigned, but not to a constant."""

    values: dict[str, list[Parts] | None] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)

    def copy(self) -> Variables:
        return Variables(dict(self.values), set(self.assigned))

    def set(self, name: str, value: list[Parts] | None) -> None:
        self.assigned.add(name)
        if value is not None and sum(len(parts) for parts in value) > MAX_PARTS:
            value = None
        self.values[name] = value


class Expander:
    """Expands the words of one source."""

    def __init__(self, source: Source, variables: Variables, in_batch: bool, depth: int = 0) -> None:
        self.source = source
        self.variables = variables
        self.in_batch = in_batch
        self.depth = depth  # of defaults inside defaults

    def words(self, word: Word) -> list[Parts]:
        """The words that one written word becomes."""
        whole = self._whole_variable(word)
        if whole is not None:
            return whole
        done: list[Parts] = []
        current: Parts = []
        for piece in word.pieces:
            for part in self.piece(piece):
                split = not piece.quote and piece.kind == "variable" and part.known and re.search(r"\s", part.text)
                if not split:
                    current.append(part)
                    continue
                current = _cut_at_blanks(part, done, current)
        return done + ([current] if current or not done else [])

    def one(self, word: Word) -> Parts:
        """The word without splitting, as an assignment takes it."""
        return [part for piece in word.pieces for part in self.piece(piece)]

    def _whole_variable(self, word: Word) -> list[Parts] | None:
        """`"${ARGS[@]}"` and `$ARGS` on their own: the words that were stored."""
        if len(word.pieces) != 1 or word.pieces[0].kind != "variable":
            return None
        piece = word.pieces[0]
        match = _EXPRESSION.match(piece.text)
        if match is None or match["operator"] or match["rest"]:
            return None
        stored = self.variables.values.get(match["name"])
        if stored is None:
            return None
        if match["index"] in ("[@]", "[*]"):
            return list(stored)
        if match["index"] or piece.quote or len(stored) != 1:
            return None
        return split_parts(stored[0])

    def piece(self, piece: Piece) -> Parts:
        if piece.kind == "text":
            exact = piece.quote != "\\" or piece.end - piece.start == len(piece.text)
            default = any(piece.start <= place < piece.end for place in self.source.defaults)
            quoted = bool(piece.quote)
            return [Part(piece.text, self.source, piece.start, piece.end, quoted=quoted, exact=exact, default=default)]
        if piece.kind == "arithmetic":
            number = evaluate(piece.text, self.number)
            if number is not None:
                default = any(self._is_default(name) for name in re.findall(r"[A-Za-z_]\w*", piece.text))
                return [Part(str(number), self.source, piece.start, piece.end, exact=False, default=default)]
            return [self._unknown(piece, f"$(({piece.text}))", "")]
        if piece.kind == "command":
            return [self._unknown(piece, f"$({piece.text})", "")]
        return self._variable(piece)

    def _variable(self, piece: Piece) -> Parts:
        match = _EXPRESSION.match(piece.text)
        if match is None:
            return [self._unknown(piece, f"${piece.text}", "")]
        name, operator = match["name"], match["operator"] or ""
        stored = self.variables.values.get(name)
        plain = not operator and not match["rest"]
        if stored is not None and len(stored) == 1 and not match["index"]:
            if plain or operator in (":-", "-", ":=", "=", ":?", "?"):
                use = self.source.span(piece.start, piece.end)
                return [replace(part, quoted=bool(piece.quote), use=use) for part in stored[0]]
        elif name not in self.variables.values and operator in (":-", "-", ":=", "="):
            default = self._default(piece, match["rest"])
            if operator in (":=", "="):
                self.variables.set(name, [default])
            return default
        elif stored is not None and match["index"] in ("[@]", "[*]") and plain:
            blank = Part(" ", self.source, piece.start, piece.start + 1, quoted=bool(piece.quote))
            return [part for parts in stored for part in (blank, *parts)][1:]
        shown = f"${name}" if plain and not match["index"] else "${" + piece.text + "}"
        return [self._unknown(piece, shown, name)]

    def _default(self, piece: Piece, text: str) -> Parts:
        """The default of `${NAME:-text}`, at its place."""
        start = piece.end - 1 - len(text)
        if not text.strip("'\""):
            return [Part("", self.source, start, start)]
        statements = scan(text).statements
        words = statements[0].words if len(statements) == 1 else []
        if len(words) != 1 or words[0].items is not None or self.depth > MAX_DEPTH:
            return [self._unknown(piece, "${" + piece.text + "}", "")]
        inner = Expander(part_of(self.source, start, piece.end - 1), self.variables, self.in_batch, self.depth + 1)
        return [replace(part, default=True) for part in inner.one(words[0])]

    def _unknown(self, piece: Piece, text: str, name: str) -> Part:
        batch = self.in_batch or piece.start in self.source.outer
        return Part(text, self.source, piece.start, piece.end, False, name, batch, bool(piece.quote), False)

    def number(self, name: str) -> int | None:
        """A variable as a whole number."""
        stored = self.variables.values.get(name)
        if not stored or len(stored) != 1 or not all(part.known for part in stored[0]):
            return None
        text = "".join(part.text for part in stored[0]).strip()
        return int(text) if text.isdecimal() and len(text) < 19 else None

    def _is_default(self, name: str) -> bool:
        return any(part.default for parts in self.variables.values.get(name) or () for part in parts)


def split_parts(parts: Parts) -> list[Parts]:
    """A stored text split at its blanks, as an unquoted variable is."""
    done: list[Parts] = []
    current: Parts = []
    for part in parts:
        if not part.known or not part.exact:
            current.append(part)
            continue
        current = _cut_at_blanks(part, done, current)
    return done + ([current] if current else [])


def _cut_at_blanks(part: Part, done: list[Parts], current: Parts) -> Parts:
    """Words that end inside the part go to `done`; the one that may go on behind it is given back."""
    for run in re.finditer(r"(\s+)|\S+", part.text):
        if not run[1]:
            current.append(part.cut(run.start(), run.end()))
        elif current:
            done.append(current)
            current = []
    return current


def script_in(parts: Parts) -> Source:
    """The source of a script given as a string (`bash -c "..."`); what the outer shell expands is remembered."""
    if len(parts) == 1 and parts[0].exact:
        return part_of(parts[0].source, parts[0].start, parts[0].end)
    indexes: list[int] = []
    places: list[tuple[int, int]] = []
    outer: set[int] = set()
    defaults: set[int] = set()
    text = ""
    for part, shown in zip(parts, _texts(parts), strict=True):
        if not part.known and part.by_batch:
            outer.add(len(text))
        if part.default:
            defaults.add(len(text))
        inner = part_of(part.source, part.start, part.end) if part.exact else None
        if inner is not None and inner.fixed is None:
            indexes += [len(text) + index for index in inner.indexes]
            places += inner.places
        else:
            indexes.append(len(text))
            places.append(part.source.place(part.start))
        text += shown
    return Source(text, indexes or [0], places or [(1, 1)], outer=frozenset(outer), defaults=frozenset(defaults))


def evaluate(text: str, number: Callable[[str], int | None]) -> int | None:
    """A whole-number expression of constants and known variables; None when it is more than that."""
    tokens: list[str | int] = []
    at = 0
    while at < len(text.rstrip()):
        match = _ARITHMETIC.match(text, at)
        if match is None or len(tokens) > 60:
            return None
        at = match.end()
        if match[2]:
            operand = number(match[2])
            if operand is None:
                return None
            tokens.append(operand)
        else:
            tokens.append(int(match[1][:19]) if match[1] else match[3])
    try:
        value, rest = _sum(tokens)
    except (IndexError, ZeroDivisionError, ValueError):
        return None
    return value if not rest and abs(value) < 2**63 else None


def _sum(tokens: list[str | int]) -> tuple[int, list[str | int]]:
    value, rest = _product(tokens)
    while rest and rest[0] in ("+", "-"):
        right, after = _product(rest[1:])
        value, rest = (value + right if rest[0] == "+" else value - right), after
    return value, rest


def _product(tokens: list[str | int]) -> tuple[int, list[str | int]]:
    value, rest = _atom(tokens)
    while rest and rest[0] in ("*", "/", "%"):
        right, after = _atom(rest[1:])
        value = value * right if rest[0] == "*" else value // right if rest[0] == "/" else value % right
        rest = after
    return value, rest


def _atom(tokens: list[str | int]) -> tuple[int, list[str | int]]:
    first = tokens[0]
    if isinstance(first, int):
        return first, tokens[1:]
    if first == "-":
        value, rest = _atom(tokens[1:])
        return -value, rest
    if first == "(":
        value, rest = _sum(tokens[1:])
        if rest[0] == ")":
            return value, rest[1:]
    raise ValueError("not an expression")
