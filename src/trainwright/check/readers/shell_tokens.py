"""The tokens of a shell text as bash itself separates them, quotes and substitutions included. Whatever is not certain
raises `Doubt`: `shell_syntax` uses it to tell the scripts that bash accepts for certain from those worth asking it."""

from __future__ import annotations

import re

_MAX_DEPTH = 40  # substitutions in substitutions
_BLANK = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_OPERATOR = re.compile(
    r"(?:\d+|\{\w+\})?(?:<<<|<<-|<<|>>|>&|<&|>\||<>|<(?!\()|>(?!\())|&>>|&>|;;&|;;|;&|&&|\|\||\|&|[;&|()]"
)
_REDIRECTION = re.compile(r"[<>]")
_PIECE = re.compile(
    r"(?P<plain>(?:[^ \t\n\\'\"$`;&|()<>]|\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$(?![({'\"]))+)"
    r"|(?P<quote>\$?\")|(?P<open>\$\(\(|\$\(|\$\{|[<>]\()|(?P<tick>`)",
    re.DOTALL,
)  # fmt: skip
_IN_QUOTES = re.compile(r"(?:[^\"\\$`]|\\.|\$(?![({]))*(?P<end>\"|\$\(\(|\$\(|\$\{|`)", re.DOTALL)
_IN_BRACES = re.compile(r"(?:[^\"'\\$`}]|\\.|\$(?![({'\"]))*(?P<end>[}\"`]|\$\(\(|\$\(|\$\{)", re.DOTALL)
_IN_ARITHMETIC = re.compile(r"(?:[^()'\"`\\$]|\$(?![({]))*(?P<end>[()\"`]|\$\(\(|\$\(|\$\{)")
_BACKQUOTED = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^]\n]*\])?\+?=\Z")


class Doubt(Exception):
    """The text is not certainly one that bash accepts."""


class Tokens:
    """A place in a text and the token that is there: a word as it is written, an operator, a newline, or the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0  # behind the token
        self.start = 0
        self.token = ""
        self.kind = "start"  # word | operator | newline | end
        self.depth = 0
        self.arrays = False  # whether a word may assign an array here
        self.waiting: list[tuple[str, bool]] = []  # here-documents that begin at the next newline

    def advance(self) -> None:
        """Read the next token."""
        if self.kind != "word" and not self.redirects:
            self.arrays = True
        blank = _BLANK.match(self.text, self.at)
        self.start = self.at = blank.end() if blank is not None else self.at
        if self.at >= len(self.text):
            self.kind, self.token = "end", ""
        elif self.text[self.at] == "\n":
            self.kind, self.token = "newline", "\n"
            self.at += 1
            if self.waiting:
                self._bodies()
        elif (operator := _OPERATOR.match(self.text, self.at)) is not None:
            self.kind, self.token, self.at = "operator", operator[0], operator.end()
        else:
            self._word()
            self.kind, self.token = "word", self.text[self.start : self.at]

    @property
    def redirects(self) -> bool:
        return self.kind == "operator" and _REDIRECTION.search(self.token) is not None

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.token in words

    def is_operator(self, *operators: str) -> bool:
        return self.kind == "operator" and self.token in operators

    def take(self, kind: str, *tokens: str) -> None:
        """Pass a token that must be there."""
        if self.kind != kind or (tokens and self.token not in tokens):
            raise Doubt
        self.advance()

    def newlines(self) -> None:
        while self.kind == "newline":
            self.advance()

    def here_document(self, operator: str) -> None:
        """The word of the current token ends a here-document."""
        mark = re.sub(r"['\"\\]", "", self.token)
        if re.search(r"[$`\n]", self.token):
            raise Doubt
        self.waiting.append((mark, operator.endswith("-")))

    def _bodies(self) -> None:
        """Skip the here-documents; one without an end goes up to the end of the text, with a warning of bash."""
        for mark, tabs in self.waiting:
            line = re.escape(mark) if not tabs else r"\t*" + re.escape(mark)
            end = re.compile(rf"^{line}$", re.MULTILINE).search(self.text, self.at)
            self.at = min(end.end() + 1, len(self.text)) if end is not None else len(self.text)
        self.waiting.clear()

    def _word(self) -> None:
        start = self.at
        while (piece := _PIECE.match(self.text, self.at)) is not None:
            self.at = piece.end()
            if piece["quote"]:
                self._until(_IN_QUOTES, '"')
            elif not piece["plain"]:
                self._open(piece[0])
            elif self.arrays and self.text.startswith("(", self.at) and _ARRAY.match(self.text[start : self.at]):
                self._array()
        if self.at == start:
            raise Doubt

    def _until(self, inside: re.Pattern[str], end: str) -> None:
        """Pass what is quoted or in braces, with the substitutions in it."""
        while True:
            match = inside.match(self.text, self.at)
            if match is None:
                raise Doubt
            self.at = match.end()
            if match["end"] == end:
                return
            if match["end"] == '"':
                self._until(_IN_QUOTES, '"')
            else:
                self._open(match["end"])

    def _open(self, opening: str) -> None:
        """Pass the substitution that begins before this place."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Doubt
        if opening == "$((":
            self._arithmetic(2)
        elif opening == "${":
            self._until(_IN_BRACES, "}")
        elif opening == "`":
            quoted = _BACKQUOTED.match(self.text, self.at)
            if quoted is None:
                raise Doubt
            self.at = quoted.end()
        else:
            self._commands()
        self.depth -= 1

    def _commands(self) -> None:
        """Pass the commands of `$(…)`, with the place of the word around them restored."""
        before = self.start, self.arrays, self.waiting
        self.waiting, self.kind = [], "start"
        self.advance()
        self.commands(")", empty=True)
        if self.token != ")" or self.waiting:
            raise Doubt
        self.start, self.arrays, self.waiting = before

    def commands(self, *ends: str, empty: bool) -> None:
        """Pass commands up to one of these tokens."""
        raise NotImplementedError

    def _arithmetic(self, depth: int) -> None:
        while depth:
            match = _IN_ARITHMETIC.match(self.text, self.at)
            if match is None:
                raise Doubt
            self.at, end = match.end(), match["end"]
            if end == '"':
                self._until(_IN_QUOTES, '"')
            elif end not in "()":
                self._open(end)
            else:
                depth += 1 if end == "(" else -1
                if depth == 1 and end == ")" and not self.text.startswith(")", self.at):
                    raise Doubt  # the end of a `((` is `))`

    def arithmetic_command(self) -> None:
        """Pass `((…))`, whose first parenthesis is the current token."""
        self.at += 1
        self._arithmetic(2)
        self.advance()

    def _array(self) -> None:
        start = self.start
        self.at += 1
        self.advance()
        while self.kind in ("word", "newline"):
            self.advance()
        if not self.is_operator(")"):
            raise Doubt
        self.start = start
