"""Templates of Jinja and Helm, made readable: expressions become placeholders and control lines become blank, each of
the same width, so that structure and positions stay. Of the branches of an `if` the first is kept."""

from __future__ import annotations

import re

_EXPRESSION = re.compile(r"\$?\{\{(?!resolve:).*?\}\}", re.DOTALL)
_STATEMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_MARK = re.compile(r"\{\{(?!resolve:)|\{%")
_CONTROL_LINE = re.compile(r"^\s*(?:\{\{-?|\{%[-+]?)\s*/?\*?\s*(?P<word>\w*)")
_OPENING = {"if", "range", "with", "define", "block", "for", "macro", "filter", "call", "raw"}
_CLOSING = re.compile(r"end\w*$")
_SUFFIX = re.compile(r"([.-])(tpl|tmpl|template|j2|jinja2?|in|envsubst|gotmpl)$", re.IGNORECASE)


STAND_IN = re.compile(r"\$J{4,}")  # what `filled` writes for an expression


def without_suffix(name: str) -> str:
    """A file name without what marks it as a template: `train.yaml-template` is `train.yaml`."""
    inner = _SUFFIX.sub("", name)
    # `vpc.template` is a CloudFormation file: only a name that still has a suffix inside is a template's.
    return inner if inner != name and re.search(r"\.\w+$", inner) else name


def is_template(text: str) -> bool:
    """Whether a text holds expressions of Jinja or Helm."""
    return _MARK.search(text) is not None


def filled(text: str) -> str:
    """The text with expressions as `$JJJ` and statements as blanks, of the same width."""
    lines = _without_branches(text.split("\n"))
    text = _STATEMENT.sub(_blank, "\n".join(lines))
    return _EXPRESSION.sub(_placeholder, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _placeholder(match: re.Match[str]) -> str:
    if "\n" in match[0]:
        return _blank(match)
    return "$" + "J" * (len(match[0]) - 1)


def _without_branches(lines: list[str]) -> list[str]:
    """Control lines are blanked, and so are the lines of an `else` branch."""
    kept: list[str] = []
    blocks: list[bool] = []  # one entry per open block: whether its current branch is dropped
    for line in lines:
        match = _CONTROL_LINE.match(line)
        word = match["word"] if match is not None else ""
        alone = match is not None and re.fullmatch(r"\s*(\{\{[^}]*\}\}|\{%.*?%\})\s*", line) is not None
        if alone and word in _OPENING:
            blocks.append(bool(blocks and blocks[-1]) or word in ("define", "macro"))
        elif alone and word in ("else", "elif", "elseif") and blocks:
            blocks[-1] = True
        elif alone and _CLOSING.match(word) and blocks:
            blocks.pop()
        elif not alone and not (blocks and blocks[-1]):
            kept.append(line)
            continue
        kept.append(" " * len(line))
    return kept
