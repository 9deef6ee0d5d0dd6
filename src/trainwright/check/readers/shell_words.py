"""Splits shell text into statements of words, each word into pieces (plain text, variables, substitutions) with their
places. It understands quotes, continuations, comments, arrays, redirections and here-documents; it runs nothing, and
text that is no shell gives words all the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PLAIN = re.compile(r"[^\s\\'\"$`#;&|()<>]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_ARRAY_START = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=\Z")
_OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", "<>")


_BEFORE_ARITHMETIC = {"for", "if", "elif", "while", "until", "then", "else", "do", "!", "{", "time"}


@dataclass(slots=True)
class Piece:
    """A part of a word. `text` is the plain text, the variable's expression, or the command."""

    kind: str  # text | variable | command | arithmetic
    text: str
    start: int
    end: int
    quote: str = ""


@dataclass(slots=True)
class Word:
    """One word; `items` are the elements when it assigns an array."""

    start: int
    end: int = 0
    pieces: list[Piece] = field(default_factory=list)
    items: list[Word] | None = None

    @property
    def literal(self) -> str:
        """The text when the word holds nothing to expand, else an empty string."""
        return "".join(p.text for p in self.pieces) if all(p.kind == "text" for p in self.pieces) else ""

    @property
    def bare(self) -> str:
        """The text when the word is plain and unquoted, as keywords are."""
        return self.pieces[0].text if len(self.pieces) == 1 and not self.pieces[0].quote and self.literal else ""


@dataclass(slots=True)
class Heredoc:
    """The body of a here-document."""

    start: int
    end: int
    quoted: bool


@dataclass(slots=True)
class Statement:
    """Words up to an operator, or (without words) the operator itself."""

    words: list[Word] = field(default_factory=list)
    operator: str = ""
    heredocs: list[Heredoc] = field(default_factory=list)
    redirects: list[tuple[int, int]] = field(default_factory=list)  # start of the operator, end of the target
    arithmetic: int = -1  # where its `((` is


@dataclass(slots=True)
class Scan:
    """What the text holds."""

    statements: list[Statement]
    comments: list[tuple[int, int]]  # start and end of each


def scan(text: str) -> Scan:
    """The statements of a shell text."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.in_array = False  # arrays do not nest
        self.closing_pair = -1  # the next `))`, looked for once
        self.statement = Statement()
        self.statements: list[Statement] = []
        self.comments: list[tuple[int, int]] = []
        self.waiting: list[tuple[Statement, str, bool, bool]] = []  # here-documents whose body has not begun

    def run(self) -> Scan:
        text, size = self.text, len(self.text)
        while self.at < size:
            char = text[self.at]
            if char == "\n":
                self.finish("\n")
                self.at += 1
                self.bodies()
            elif char.isspace():
                self.at += 1
            elif text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at += 2 if text[self.at + 1] == "\n" else 3
            elif char == "#":
                end = text.find("\n", self.at)
                end = size if end < 0 else end
                self.comments.append((self.at, end))
                self.at = end
            elif char in ";&|()<>":
                self.operator()
            else:
                self.statement.words.append(self.word())
        self.finish("")
        return Scan(self.statements, self.comments)

    def finish(self, operator: str) -> None:
        holds = self.statement.words or self.statement.heredocs or self.statement.arithmetic >= 0
        if holds or operator not in ("\n", ";", ""):
            self.statement.operator = operator
            self.statements.append(self.statement)
            self.statement = Statement()

    def operator(self) -> None:
        text = self.text
        if text.startswith("((", self.at) and self.arithmetic_command():
            return
        operator = next((o for o in _OPERATORS if text.startswith(o, self.at)), text[self.at])
        self.at += len(operator)
        if operator in ("<<", "<<-"):
            self.heredoc(operator)
        elif "<" in operator or ">" in operator:
            self.redirect(self.at - len(operator))
        else:
            self.finish(operator)

    def arithmetic_command(self) -> bool:
        words = self.statement.words
        if words and words[-1].bare not in _BEFORE_ARITHMETIC:
            return False
        if self.closing_pair < self.at:
            closing = self.text.find("))", self.at)
            self.closing_pair = closing if closing >= 0 else len(self.text)
        if self.closing_pair == len(self.text):
            return False
        self.statement.arithmetic, self.at = self.at, self.closing_pair + 2
        return True

    def redirect(self, start: int) -> None:
        """The target of a redirection is no argument; neither is the number before it (`2>`)."""
        words = self.statement.words
        if words and words[-1].end == start and words[-1].bare.isdecimal():
            words.pop()
        self.skip_blanks()
        if self.at < len(self.text) and self.text[self.at] not in "\n;&|()<>":
            self.word()
            self.statement.redirects.append((start, self.at))

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def heredoc(self, operator: str) -> None:
        self.skip_blanks()
        if self.at >= len(self.text) or self.text[self.at] in "\n;&|()<>":
            return
        word = self.word()
        quoted = any(piece.quote for piece in word.pieces)
        self.waiting.append((self.statement, "".join(p.text for p in word.pieces), operator == "<<-", quoted))

    def bodies(self) -> None:
        for statement, mark, dash, quoted in self.waiting:
            start = self.at
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].rstrip("\r")
                begin, self.at = self.at, min(end + 1, len(self.text))
                if (line.lstrip("\t") if dash else line) == mark:
                    statement.heredocs.append(Heredoc(start, begin, quoted))
                    break
            else:
                statement.heredocs.append(Heredoc(start, self.at, quoted))
        self.waiting.clear()

    def word(self) -> Word:
        word = Word(self.at)
        text, size = self.text, len(self.text)
        while self.at < size:
            char = text[self.at]
            if char.isspace() or char in ";&|<>)":
                break
            if char == "(":
                if word.items is None and not self.in_array and _ARRAY_START.match(text[word.start : self.at]):
                    word.items = self.array()
                    continue
                break
            if text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at += 2 if text[self.at + 1] == "\n" else 3
            elif char == "\\":
                word.pieces.append(Piece("text", text[self.at + 1 : self.at + 2], self.at, self.at + 2, "\\"))
                self.at += 2
            elif char == "'":
                self.single(word)
            elif text.startswith(("$'", '$"'), self.at):
                self.at += 1
                self.escaped(word) if text[self.at] == "'" else self.double(word)
            elif char == '"':
                self.double(word)
            elif char in "$`":
                word.pieces.append(self.expansion(""))
            else:
                match = _PLAIN.match(text, self.at)
                end = match.end() if match else self.at + 1
                word.pieces.append(Piece("text", text[self.at : end], self.at, end))
                self.at = end
        self.at = min(self.at, size)
        word.end = self.at
        return word

    def array(self) -> list[Word]:
        items: list[Word] = []
        self.at += 1
        self.in_array = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ")":
                self.at += 1
                break
            if char == "#":
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                self.comments.append((self.at, end))
                self.at = end
            elif char.isspace() or char in ";&|<>(":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                items.append(self.word())
        self.in_array = False
        return items

    def single(self, word: Word) -> None:
        end = self.text.find("'", self.at + 1)
        end = len(self.text) if end < 0 else end
        word.pieces.append(Piece("text", self.text[self.at + 1 : end], self.at + 1, end, "'"))
        self.at = end + 1

    def escaped(self, word: Word) -> None:
        """`$'it\\'s'`: a backslash keeps the quote."""
        end = self.at + 1
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        end = min(end, len(self.text))
        word.pieces.append(Piece("text", self.text[self.at + 1 : end], self.at + 1, end, "'"))
        self.at = end + 1

    def double(self, word: Word) -> None:
        text, size = self.text, len(self.text)
        self.at += 1
        begin = self.at
        empty = True

        def flush() -> None:
            if self.at > begin:
                word.pieces.append(Piece("text", text[begin : self.at], begin, self.at, '"'))

        while self.at < size and text[self.at] != '"':
            char = text[self.at]
            if char == "\\" and text[self.at + 1 : self.at + 2] in ("$", '"', "\\", "`", "\n"):
                flush()
                escaped = text[self.at + 1].strip("\n")
                word.pieces.append(Piece("text", escaped, self.at + 1, self.at + 2, "\\"))
                self.at += 2
                begin, empty = self.at, False
            elif char in "$`" and self.at + 1 < size and text[self.at + 1] != '"':
                flush()
                word.pieces.append(self.expansion('"'))
                begin, empty = self.at, False
            else:
                self.at += 1
        if self.at > begin or empty:
            word.pieces.append(Piece("text", text[begin : self.at], begin, self.at, '"'))
        self.at += 1

    def expansion(self, quote: str) -> Piece:
        """`$NAME`, `${...}`, `$(...)`, `$((...))` or a backquoted command at this place."""
        text, start = self.text, self.at
        if text[start] == "`":
            end = start + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            self.at = min(end + 1, len(text))
            return Piece("command", text[start + 1 : end], start, self.at, quote)
        if text.startswith("$((", start):
            end = self.closing(start + 1, "(", ")")
            self.at = end
            if text[end - 2 : end] == "))":
                return Piece("arithmetic", text[start + 3 : end - 2], start, end, quote)
            return Piece("command", text[start + 2 : end - 1], start, end, quote)
        for opening, close, kind in (("$(", ")", "command"), ("${", "}", "variable")):
            if text.startswith(opening, start):
                end = self.closing(start + 1, opening[1], close)
                self.at = end
                return Piece(kind, text[start + 2 : max(start + 2, end - 1)], start, end, quote)
        match = _NAME.match(text, start + 1)
        if match is None:
            self.at = start + 1
            return Piece("text", "$", start, start + 1, quote)
        self.at = match.end()
        return Piece("variable", match[0], start, match.end(), quote)

    def closing(self, start: int, opening: str, close: str) -> int:
        """Just past the bracket that closes the one at `start`, minding escapes, and quotes where these are closed."""
        if opening == "(" and (end := self._closing_command(start)) >= 0:
            return end
        text, size = self.text, len(self.text)
        depth, at = 0, start
        while at < size:
            char = text[at]
            if char == "\\":
                at += 1
            elif char == opening:
                depth += 1
            elif char == close:
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        return size

    def _closing_command(self, start: int) -> int:
        """The same for `$(…)`; negative where quotes are not closed, as in a here-document."""
        text, size, at, inside = self.text, len(self.text), start, list[str]()
        while at < size:
            char = text[at]
            if char == "\\":
                at += 1
            elif inside and inside[-1] == '"':
                if char == '"':
                    inside.pop()
                elif text.startswith("$(", at):
                    inside.append("(")
                    at += 1
            elif char == "'":
                end = text.find("'", at + 1)
                if end < 0:
                    return -1
                at = end
            elif char in '"(':
                inside.append(char)
            elif char == ")":
                inside.pop()
                if not inside:
                    return at + 1
            at += 1
        return -1
