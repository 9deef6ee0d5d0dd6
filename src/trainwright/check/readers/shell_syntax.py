"""Whether bash may refuse a script. Only scripts whose every command is read to its end here are certain; to ask bash
about each script would take most of the time of `check`."""

from __future__ import annotations

import re

from trainwright.check.readers.shell_tokens import Doubt, Tokens

_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTION = re.compile(r"[\w.:+-]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]\n]*\])?\+?=")
_DECLARES = {"declare", "local", "export", "readonly", "typeset"}
_RESERVED = {"then", "else", "elif", "fi", "do", "done", "esac", "in", "}", "]]", "!", "time", "coproc"}
_CASE_ENDS = (";;", ";&", ";;&")
_BINARY = {"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"}
# The pattern behind `=~`: parentheses, bars and quotes belong to it.
_REGEX = re.compile(r"[ \t]*(?:[^ \t\n\\'\"`()&;<>]|\\.|\([^()'\"`\\\n]*\)|\"[^\"\\`]*\"|'[^']*')+(?=[ \t\n])")


def may_be_refused(text: str) -> bool:
    """False where `bash -n` accepts the text for certain."""
    return _Parser(text).stops


def open_block(text: str) -> tuple[str, int, int] | None:
    """The innermost block that is open where reading a script stops: what opens it, its line, and that where reading
    stops."""
    parser = _Parser(text)
    if not parser.stops or not parser.opened:
        return None
    opening, start = parser.opened[-1]
    return opening, text.count("\n", 0, start) + 1, text.count("\n", 0, parser.start) + 1


class _Parser(Tokens):
    """Passes commands by bash's grammar."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.opened: list[tuple[str, int]] = []  # blocks that have not ended: what opens them and where
        try:
            self.advance()
            self.commands("", empty=True)
            self.stops = False
        except (Doubt, RecursionError):
            self.stops = True

    def commands(self, *ends: str, empty: bool = False) -> None:
        """Pass commands up to one of these words or operators; without one only at the end of the text."""
        some = empty
        while True:
            self.newlines()
            if self.kind == "end" or (self.token in ends and self.kind in ("word", "operator")):
                if not some or (self.kind == "end" and "" not in ends):
                    raise Doubt
                return
            self._list()
            some = True
            if self.is_operator(";", "&") or self.kind == "newline":
                self.advance()
            elif self.kind != "end" and not (self.kind == "operator" and self.token in ends):
                raise Doubt

    def _list(self) -> None:
        self._command()
        while self.is_operator("&&", "||", "|", "|&"):
            self.advance()
            self.newlines()
            self._command()

    def _command(self) -> None:
        while self.is_word("!", "time"):
            self.advance()
        if self._compound():
            while self.redirects:
                self._redirect()
        elif self.is_word(*_RESERVED):
            raise Doubt
        else:
            self._simple()

    def _compound(self) -> bool:
        """Pass a compound command, if one is there."""
        pass_on = _COMPOUNDS.get(self.token) if self.kind in ("word", "operator") else None
        if pass_on is None:
            return False
        self.opened.append((self.token, self.start))
        if self.kind == "word":
            self.advance()
        pass_on(self)
        self.opened.pop()
        return True

    def _parentheses(self) -> None:
        if self.text.startswith("(", self.at):
            self.arithmetic_command()
            return
        self.advance()
        self.commands(")")
        self.take("operator", ")")

    def _simple(self) -> None:
        first, words, redirections = "", 0, 0
        while self.kind == "word" or self.redirects:
            if self.redirects:
                self._redirect()
                redirections += 1
                continue
            first = first or ("" if _ASSIGNMENT.match(self.token) else self.token)
            self.arrays = not first or first in _DECLARES
            words += 1
            self.advance()
            if words == 1 and self.is_operator("(") and _FUNCTION.fullmatch(first):
                self.advance()
                self.take("operator", ")")
                self._body()
                return
        if not words and not redirections:
            raise Doubt

    def _redirect(self) -> None:
        operator = self.token
        self.advance()
        if self.kind == "word" and operator.endswith(("<<", "<<-")) and not operator.endswith("<<<"):
            self.here_document(operator)
        self.take("word")

    def _body(self) -> None:
        """Pass the body of a function."""
        self.newlines()
        if not self._compound():
            raise Doubt
        while self.redirects:
            self._redirect()

    def _function(self) -> None:
        if not _FUNCTION.fullmatch(self.token):
            raise Doubt
        self.advance()
        if self.is_operator("("):
            self.advance()
            self.take("operator", ")")
        self._body()

    def _block(self, *ends: str) -> str:
        """Pass the commands of a block and the word that ends it."""
        self.commands(*ends)
        end = self.token
        self.take("word", *ends)
        return end

    def _braces(self) -> None:
        self._block("}")

    def _if(self) -> None:
        self._block("then")
        while (end := self._block("elif", "else", "fi")) == "elif":
            self._block("then")
        if end == "else":
            self._block("fi")

    def _while(self) -> None:
        self._block("do")
        self._block("done")

    def _for(self) -> None:
        if self.is_operator("("):
            if not self.text.startswith("(", self.at):
                raise Doubt
            self.arithmetic_command()
        else:
            if not _NAME.fullmatch(self.token):
                raise Doubt
            self.advance()
            self.newlines()
            if self.is_word("in"):
                self.advance()
                while self.kind == "word":
                    self.advance()
                if not self.is_operator(";") and self.kind != "newline":
                    raise Doubt
        if self.is_operator(";"):
            self.advance()
        self.newlines()
        self.take("word", "do")
        self._block("done")

    def _case(self) -> None:
        self.take("word")
        self.newlines()
        self.take("word", "in")
        self.newlines()
        while not self.is_word("esac"):
            if self.is_operator("("):
                self.advance()
            self.take("word")
            while self.is_operator("|"):
                self.advance()
                self.take("word")
            self.take("operator", ")")
            self.commands(*_CASE_ENDS, "esac", empty=True)
            if self.is_operator(*_CASE_ENDS):
                self.advance()
                self.newlines()
        self.advance()

    def _test(self) -> None:
        """Pass `[[ … ]]`, without parentheses."""
        self._condition()
        while self.is_operator("&&", "||"):
            self.advance()
            self.newlines()
            self._condition()
        self.take("word", "]]")

    def _condition(self) -> None:
        while self.is_word("!"):
            self.advance()
        first = self.token
        if first == "]]":
            raise Doubt
        self.take("word")
        if re.fullmatch(r"-[A-Za-z]", first):
            if self.is_word("]]"):
                raise Doubt
            self.take("word")
        elif self.is_word("=~"):
            pattern = _REGEX.match(self.text, self.at)
            if pattern is None:
                raise Doubt
            self.at = pattern.end()
            self.advance()
        elif self.is_word(*_BINARY) or self.is_operator("<", ">"):
            self.advance()
            if self.is_word("]]"):
                raise Doubt
            self.take("word")


_COMPOUNDS = {
    "(": _Parser._parentheses, "{": _Parser._braces, "if": _Parser._if, "while": _Parser._while,
    "until": _Parser._while, "for": _Parser._for, "select": _Parser._for, "case": _Parser._case,
    "function": _Parser._function, "[[": _Parser._test,
}  # fmt: skip
