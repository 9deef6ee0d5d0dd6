"""SHL: requirements of Python packages that the shell takes for a redirection, a command or a variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.check import reasons
from trainwright.check.finding import Edit, Level
from trainwright.check.launches.pip_places import of_pip
from trainwright.check.model import EnvVar, File, ShellScript, Value
from trainwright.check.readers.shell_quotes import ShellString, string_around, strings_of_shells
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.slu_pipes import OF_SH
from trainwright.spec.source import Span

_REQUIREMENT = re.compile(r"[A-Za-z][\w.-]*(\[[\w,]+\])?==\d")
# A requirement that the shell takes apart: `torch>=2.4`, `x[a]<2`, `y>=1,<2`.
_UNQUOTED = re.compile(r"(?<=\s)[A-Za-z][\w.-]*(\[[\w,.-]+\])?[<>]=?[\d.*]+(,[<>=!~]=?[\d.*]+)*(?=\s|$)")
_INSTALLS = re.compile(r"\b(pip3?|uv|conda|mamba|micromamba)\b.*\binstall\b|\bconda create\b")
_UPPER = re.compile(r"<\s*(=?\s*\d[\w.*]*)")  # of `pip install x>=1,<2`


def redirected(file: File, script: ShellScript) -> Iterator[Problem]:
    """One finding for all of a file that stand between the same quotes."""
    by_quotes: dict[str, list[tuple[Span, str, str]]] = {}
    strings = strings_of_shells(file.lines) if script.version_redirects else []
    for place in script.version_redirects:
        by_quotes.setdefault(_quotes_around(file, place[0], strings), []).append(place)
    for around, places in by_quotes.items():
        yield _redirected(file, around, places)


def _redirected(file: File, around: str, places: list[tuple[Span, str, str]]) -> Problem:
    span, text, program = places[0]
    others = f" (and {len(places) - 1} more in this file)" if len(places) > 1 else ""
    bare = f"without quotes of its own inside {around}…{around}" if around else "without quotes"
    upper = _UPPER.match(file.lines[span.line - 1], span.end_column - 1) if span.line <= len(file.lines) else None
    made = f"{bare} the shell makes a file named {text[1:].strip()!r}"
    if text.startswith(">") and upper is not None:
        what = f"{made} and wants to read one named {upper[1]!r}: where there is none, {program} is not run"
    elif text.startswith(">"):
        what = f"{made}, and {program} sees no version"
    else:
        what = (
            f"{bare} the shell wants to read a file named {text[1:].strip()!r}: where there is none, "
            f"{program} is not run"
        )
    edit = _quoted(file, sorted({place.line for place, _, _ in places})) if around != "'" else None
    other = {"'": '"', '"': "'"}.get(around, "")
    fix = f"quote the requirement with {other}, as it stands between {around}" if around else "quote the requirement"
    if any(_before(file, place) == "=" for place, _, _ in places):
        fix = f"write `>=` for `=>`, and {fix}"
    why = "" if text.startswith(">") else reasons.READ_AS_FILE
    return problem(span, what + others, fix, edit=edit, why=why)


def _before(file: File, span: Span) -> str:
    """The character before a place."""
    return file.lines[span.line - 1][: span.column - 1][-1:] if span.line <= len(file.lines) else ""


def _quotes_around(file: File, span: Span, strings: list[ShellString]) -> str:
    """The quotes that a command stands between: the same would end them."""
    if span.line > len(file.lines):
        return ""
    line = file.lines[span.line - 1][: span.column - 1]
    open_ = re.search(r"^(?:[^\"']|\"[^\"]*\"|'[^']*')*([\"'])[^\"']*$", line)
    if open_ is not None:
        return open_[1]
    around = string_around((span.line, span.column), strings)
    return around.quote if around is not None else ""


def errors_to_file_one(script: ShellScript) -> Iterator[Problem]:
    for span in script.errors_to_file_one:
        yield problem(
            span, "2>1 writes the errors to a file named 1", "write 2>&1", edit=Edit(span, "2>&1"), why=reasons.FILE_ONE
        )


def _quoted(file: File, numbers: list[int]) -> Edit | None:
    """The edit that quotes the requirements of these lines; none where a line has quotes of its own, or something that
    is not taken for a requirement would stay as it is."""
    lines, first, last = file.lines, min(numbers), max(numbers)
    if last > len(lines) or any(mark in lines[number - 1] for number in numbers for mark in "'\"`"):
        return None
    changed = [
        _UNQUOTED.sub(r"'\g<0>'", line) if number in numbers else line
        for number, line in enumerate(lines[first - 1 : last], start=first)
    ]
    if any(re.search(r"[<>]\s*=?\s*\d", re.sub("'[^']*'", "", changed[number - first])) for number in numbers):
        return None
    return Edit(Span(first, 1, last, len(lines[last - 1]) + 1), "\n".join(changed))


# `torch=2.0`, `==2.0`, `==`, `torch==` and `torch> =2.0` as one word each.
_TORN = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*(\[[\w,.-]+\])?)=(?P<one>\d[\w.*+]*)|[=~!]?==?(\d[\w.*+]*)?|[A-Za-z][\w.-]*[=~!]="
    r"|[A-Za-z][\w.,\[\]-]*\s*[<>=~!]\s+=\s*\d.*"
)


def torn(script: ShellScript) -> Iterator[Problem]:
    """`pip install torch=2.0` and `pip install torch == 2.0`: one finding for each command."""
    for command in script.commands:
        words = of_pip(command)
        if not words or words[0].value != "install":
            continue
        places = [(word, match) for before, word in pairwise(words) if (match := _torn(script, before, word))]
        if places:
            fixes = dict.fromkeys(
                f"{match['name']}=={match['one']}" if match["name"] else f"name{_operator(word)}version without blanks"
                for word, match in places
            )
            what = f"{places[0][0].value!r} is no requirement: pip refuses the command"
            fix = f"write {', '.join(fixes)}"
            yield problem(places[0][0], what, fix, level="error", why=reasons.NO_REQUIREMENT)


def _operator(word: Value[str]) -> str:
    return next((one for one in ("~=", "!=", ">=", "<=") if one in word.value.replace(" ", "")), "==")


def _torn(script: ShellScript, before: Value[str], word: Value[str]) -> re.Match[str] | None:
    """What pip takes for a requirement and refuses, behind a word that is no option with a value."""
    if not word.known or "$" in _written(script, word):
        return None
    free = not before.value.startswith("-") or before.value in _WITHOUT_VALUE
    return _TORN.fullmatch(word.value) if free else None


def _written(script: ShellScript, word: Value[str]) -> str:
    """A word with its variables, whose values whoever builds the image may choose."""
    at, span = word.span.line - script.first_line, word.span
    return script.lines[at][span.column - 1 : span.end_column - 1] if 0 <= at < len(script.lines) else "$"


_WITHOUT_VALUE = (
    "-U", "--upgrade", "--no-cache-dir", "--pre", "-q", "--quiet", "-y", "--user", "--no-deps", "--force-reinstall",
    "--no-build-isolation", "--system", "-I",
)  # fmt: skip


def loose(file: File, script: ShellScript) -> Iterator[Problem]:
    """`flash-attn==2.5` alone runs as a command; `torch==2.1` alone sets the variable torch to `=2.1`."""
    for command in script.commands:
        if command.words and _REQUIREMENT.match(command.words[0].value):
            what = f"{command.words[0].value} is a requirement of a package, and is run as a command"
            place = command.words[0]
            yield problem(place, what, _install(file, place.span.line), why=reasons.LOOSE_REQUIREMENT)
    doubled = {
        a.name: a
        for a in reversed(script.assignments)
        if re.match(r"=\d+\.\d", a.value.value) and not _continues(file, a.span.line)
    }
    for variable in doubled.values():
        yield from _doubled(file, script, variable)


def _doubled(file: File, script: ShellScript, variable: EnvVar) -> Iterator[Problem]:
    name, value = variable.name, variable.value.value
    uses = re.findall(rf"(.?)\$\{{?{name}\b", file.text)
    if name.islower() and not uses:
        what = f"{name}={value} is a requirement of a package, and sets a variable here"
        yield problem(variable.span, what, _install(file, variable.span.line), why=reasons.LOOSE_REQUIREMENT)
    elif not any(before.isalnum() or before == "]" for before in uses):  # not of `torch${VERSION}`
        used = bool(uses) or script.kind == "dockerfile"
        what = f"the second `=` belongs to the value: {name} is `{value}`"
        level: Level | None = None if used else "info"
        yield problem(variable.span, what, f"write {name}{value}", level=level, why=reasons.DOUBLED_EQUALS)


def _install(file: File, line: int) -> str:
    number = next((at for at in range(line - 1, 0, -1) if file.lines[at - 1].strip()), 0)
    first = number
    while first > 1 and _continues(file, first):
        first -= 1
    if number and _INSTALLS.search(file.lines[first - 1]) and "#" not in file.lines[number - 1]:
        return f"end line {number} with a backslash, or write pip install before it"
    return "write pip install before it"


def _continues(file: File, line: int) -> bool:
    """Whether the line above ends with a backslash: what is done about that line is done about this one."""
    return line > 1 and re.search(r"(?<!\\)\\$", file.lines[line - 2]) is not None


_COMPARED = re.compile(
    r"\[\s+(?P<left>[^\[\]<>]*\$[^\[\]<>]*?)\s+(?P<sign>[<>])\s*(?P<mark>[\"']?)(?P<number>\d+(\.\d+)?)(?P=mark)\s+\]"
)


def redirected_tests(script: ShellScript) -> Iterator[Problem]:
    """`[ $NODES > 1 ]` is true for every number, and writes a file named 1; `[ $NODES < 4 ]` reads one."""
    for command in script.commands:
        if command.program != "[" or command.span.line != command.span.end_line:
            continue
        at = command.span.line - script.first_line
        line = script.lines[at] if 0 <= at < len(script.lines) else ""
        match = _COMPARED.match(line, command.span.column - 1)
        if match is not None:
            sign = match["sign"]
            right, action = ("-gt", "writes") if sign == ">" else ("-lt", "reads")
            what = f"in `[ … ]` the shell takes {sign} for a redirection: it compares nothing, and {action} a file"
            fix = f"write {right}" + ("" if OF_SH.match(script.text) else ", or `(( … ))`")
            if "." in match["number"]:
                what += ", and -gt and -lt take whole numbers only"
                left = match["left"].strip("\"'") if len(match["left"].split()) == 1 else "…"
                fix = f'write `[ "$(echo "{left} {sign} {match["number"]}" | bc -l)" -eq 1 ]`'
            yield problem(command.span, what, fix, why=reasons.REDIRECTED_TEST)
