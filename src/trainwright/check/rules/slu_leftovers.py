"""SLU: words of an #SBATCH line that belong to no option. What to write instead depends on the option before them:
behind `--time=1 day` a `#` before `day` would leave one minute."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.options import table
from trainwright.check.model import Value
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.slu_times import with_unit
from trainwright.spec.source import Span

_COMMENT = "write # before a comment"
_QUOTED = ("job-name", "comment", "output", "error", "wrap")
_LISTS = (
    "mail-type", "partition", "qos", "nodelist", "exclude", "array", "gres", "licenses", "dependency", "clusters",
)  # fmt: skip
_REST_OF_MEMORY = re.compile(r"\d{3}|[KMGT]B?", re.IGNORECASE)
_OTHER_DASH = re.compile(r"-?[\u2010-\u2015\u2212]-?")
_MAILS = ("BEGIN", "END", "FAIL", "REQUEUE", "ALL", "ARRAY_TASKS", "TIME_LIMIT", "TIME_LIMIT_50", "TIME_LIMIT_80")
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_GIVEN = re.compile(r"[A-Za-z_]\w*=(?!=)")
_OPERATOR = re.compile(r"[|&]")


def refused_line(name: str, value: Value[str] | None, where: Span, rest: str, flag: bool) -> Iterator[Problem]:
    """`rest` stands behind the last option of a line, or behind #SBATCH; `flag`: that option takes no value."""
    if any(rest.count(mark) % 2 for mark in "'\""):
        what = "sbatch refuses the line: a quote is not closed"
        yield problem(where, what, "close the quote", level="error", why=reasons.REFUSED)
    elif value is None or not value.value.startswith("="):  # a blank beside `=` is another finding
        what = f"sbatch refuses the line: `{rest.split()[0]}` is neither an option nor the value of one"
        yield problem(where, what, _fix(name, value, where, rest, flag), level="error", why=reasons.REFUSED)


def _fix(name: str, value: Value[str] | None, where: Span, rest: str, flag: bool) -> str:
    first = rest.split()[0]
    option = _option(first)
    if value is None and re.search(r"\s--?[A-Za-z]", rest):
        return f"remove `{first}`"
    if value is None:
        return f"write two dashes before an option, and {_COMMENT.removeprefix('write ')}"
    if rest == "=":
        return "write a value, or remove the option"
    if option:
        return f"write {option}"
    dashes = _OTHER_DASH.match(first)
    if dashes is not None:
        return (
            f"write {'--' if len(first) - dashes.end() > 1 else '-'}{first[dashes.end() :]}, with the hyphens of ASCII"
        )
    if flag:
        return f"remove `{first}`: the option has no value"
    if value.key is not None and not value.value and where.column == value.key.end_column:
        return "write = between an option and its value"
    return _of_value(name, value.value, rest)


def _option(word: str) -> str:
    """A long option that lacks its dashes: `ntasks`, `mem=0`."""
    match = re.fullmatch(r"([a-z][a-z-]*)(=\S+)?", word)
    known = match is not None and f"--{match[1]}" in table()["sbatch"].takes_value
    return f"--{word}" if match is not None and known and (match[2] or "-" in word or word in _SIZES) else ""


_SIZES = ("nodes", "ntasks", "gres", "mem")  # without a value other names are words of a comment, too


def _of_value(name: str, value: str, rest: str) -> str:
    first = rest.split()[0]
    if name in ("time", "time-min") and value.isdecimal():
        if re.match(r"\d+:\d", rest):
            return f"write days-hours:minutes:seconds without a blank, as in {value}-{first}"
        return with_unit(value, first.rstrip(",.")) or _COMMENT
    if name == "dependency" and ":" not in value:
        return f"write {value}:{first}"
    if name in _QUOTED and not value.endswith(","):
        return f"quote the whole value, or {_COMMENT}"
    if name == "export" and (variables := _exported(value, rest)):
        return f"write --export={variables}"
    if name == "export" and "=" not in value:
        return f"remove `{rest.strip()}`: the option takes names of variables"
    if name == "export" and not value.endswith(","):
        return f"quote the whole value, or {_COMMENT}"
    if name == "constraint" and _OPERATOR.match(first):
        return "remove the blanks"
    if first[0] == ",":
        return "remove the blanks from the list"
    if value.endswith((",", ":")) or first[0] == ":" or _goes_on(name, first):
        return "remove the blank"
    words = rest.replace(",", " ").split()
    if name == "mail-type" and all(word.upper() in _MAILS for word in words):
        return f"write {','.join([value, *words])}"
    listed = name in _LISTS and re.match(r"[\w\[]", first) is not None
    return f"write commas without blanks between the values, and {_COMMENT[6:]}" if listed else _COMMENT


def _exported(value: str, rest: str) -> str:
    """The list that `--export=ALL NAME=value` was to be, where all that follows is variables."""
    words = rest.partition(" #")[0].replace(",", " ").split()
    alone = len(words) == 1 and "=" not in value and _NAME.fullmatch(words[0])
    if not words or " " in value or value.upper() in ("NONE", "NIL") or not (alone or all(map(_GIVEN.match, words))):
        return ""
    return ",".join([value.rstrip(","), *words])


def _goes_on(name: str, word: str) -> bool:
    """Whether a word is the rest of the value: `64 GB`, `64 000`, `0-15 %4`."""
    if name == "array":
        return word.startswith("%")
    return name.startswith(("mem", "tmp")) and _REST_OF_MEMORY.fullmatch(word) is not None
