"""Which variables a statement may change in other ways than by `NAME=value`: arithmetic, `printf -v`, `eval`, a file
that is sourced, a function that gets the name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainwright.check.readers.shell_expand import Parts, Variables
from trainwright.check.readers.shell_words import Word

_BY_ARITHMETIC = re.compile(
    r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_BY_TEXT = re.compile(r"(?:^|[\s;])([A-Za-z_]\w*)\+?=")
# Files and programs that set up a shell: they know nothing of the sizes of a job.
_SETS_UP = re.compile(
    r"activate|conda|mamba|venv|bashrc|bash_profile|/etc/|profile|modules?\b|lmod|spack|setvars|pyenv|ssh-agent|brew|direnv"
)
_BY_SLURM = "SLURM_"


def by_arithmetic(text: str, start: int) -> set[str]:
    """The variables that `(( … ))` at a place may change."""
    end = text.find("))", start)
    return _names(text[start : end if end >= 0 else start])


def _names(text: str) -> set[str]:
    return {match[1] or match[2] for match in _BY_ARITHMETIC.finditer(text)}


def by_command(
    text: str, words: list[Word], expanded: list[Parts], variables: Variables, functions: Mapping[str, set[str]]
) -> set[str]:
    """The variables that a command may change: of a file that is sourced, all."""
    name, rest = words[0].bare, text[words[0].end : words[-1].end]
    if name == "let":
        return _names(rest)
    if name == "printf" and len(words) > 2 and words[1].bare == "-v":
        return {words[2].bare}
    if name == "unset":
        return {word.bare for word in words[1:] if word.bare in variables.values}
    if name in ("source", "."):
        return set() if _SETS_UP.search(rest) else _all(variables)
    if name == "eval" and len(expanded) > 1:
        first = expanded[1][0]
        if first.known:
            return set(_BY_TEXT.findall("".join(part.text for parts in expanded[1:] for part in parts)))
        return set() if _SETS_UP.search(rest) else _all(variables)
    if name not in functions:
        return set()
    return functions[name] | {word.bare for word in words[1:] if word.bare in variables.values}


def _all(variables: Variables) -> set[str]:
    return {name for name in variables.values if not name.startswith(_BY_SLURM)}
