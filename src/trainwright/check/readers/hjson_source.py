"""Hjson with positions, as the package `hjson` reads it: DeepSpeed opens its configuration with that since 0.8.3. It
takes comments, commas that are left out or one too many, and keys and texts without quotes."""

from __future__ import annotations

import re

from trainwright.check.readers.json_source import Parser, parse_json
from trainwright.spec.source import Node, RepeatedKeyError, SourceError

_BLANK = re.compile(r"(?P<closed>(?:[ \t\n\r]|(?:#|//)[^\n]*|/\*.*?\*/)*)(?P<open>/\*)?", re.DOTALL)
_QUOTED = re.compile(r"'''(?P<lines>.*?)'''|(?P<quote>[\"'])(?P<text>(?:[^\\\x00-\x1f]|\\.)*?)(?P=quote)", re.DOTALL)
_KEY = re.compile(r"[^\s:{}\[\],]+(?=[ \t]*:)")
_PLAIN = re.compile(
    r"(?P<word>true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)[ \t]*(?=[,}\]#\r\n]|//|/\*|\Z)"
)
# What is not closed goes to its end: searched for again at every later beginning, it would cost the square of a text.
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|(?://|#)[^\n]*|/\*(?:.*?\*/|.*\Z)', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|,(?=\s*[}\]])')
_LINE = re.compile(r"[^{}\[\],:\s\"'][^\r\n]*")


def parse_hjson(text: str, name: str) -> Node:
    """The one value of an Hjson text that begins with a brace. A text that is neither is refused where JSON ends, but
    for comments and commas: a value without quotes takes all brackets to the end of its line with it."""
    try:
        return _HjsonParser(text, name).document()
    except RepeatedKeyError:
        raise
    except SourceError:
        parse_json(_without_extras(text), name)
        raise


def _without_extras(text: str) -> str:
    """A text with blanks in place of comments and of commas after a last value."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    return text


class _HjsonParser(Parser):
    of_two = "DeepSpeed refuses both together, the Hugging Face Trainer silently takes the last"

    def scalar(self) -> Node:
        quoted, plain = _QUOTED.match(self.text, self.at), _PLAIN.match(self.text, self.at)
        if quoted is not None:
            text = self.json_value(quoted[0]) if quoted["quote"] == '"' else quoted["lines"] or quoted["text"] or ""
            return self._node(text, text, quoted.end())
        if plain is not None:
            return self._node(self.json_value(plain["word"]), plain["word"], plain.end("word"))
        line = _LINE.match(self.text, self.at)
        if line is None:
            raise self.error("neither JSON nor Hjson: a value is expected here")
        return self._node(line[0].rstrip(), line[0].rstrip(), line.end())

    def _node(self, value: object, text: str, end: int) -> Node:
        start, self.at = self.at, end
        return Node(value, self.span(start, end), text)

    def key(self) -> Node:
        bare = _KEY.match(self.text, self.at)
        if self.text[self.at : self.at + 1] in ('"', "'"):
            return self.scalar()
        if bare is None:
            raise self.error("neither JSON nor Hjson: a key is expected here")
        return self._node(bare[0], bare[0], bare.end())

    def separator(self, bracket: str) -> bool:
        """Commas may be missing, and one may follow the last value."""
        if self.closed(bracket):
            return True
        if self.text[self.at : self.at + 1] == ",":
            self.at += 1
            return self.closed(bracket)
        if self.at >= len(self.text):
            raise self.error(f"neither JSON nor Hjson: {bracket} is expected here")
        return False

    def blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end("closed") if match else self.at
        if match is not None and match["open"]:
            raise self.error("neither JSON nor Hjson: this comment has no end")
