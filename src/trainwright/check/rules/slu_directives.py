"""SLU: #SBATCH lines that sbatch refuses or reads in another way than they look."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.options import table
from trainwright.check.model import File, ShellScript, Value
from trainwright.check.readers.templates import is_template
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.slu_characters import dashes_of_no_option
from trainwright.check.rules.slu_leftovers import refused_line
from trainwright.check.rules.slu_times import with_unit
from trainwright.check.rules.slu_values import UNITS, refused_values
from trainwright.spec.source import Span

_COUNTED = re.compile(r"nodes|ntasks.*|cpus-per-.*|gpus.*|gres|mem.*|time|array")  # sbatch refuses a text here
_NOT_EMPTY = re.compile(r"nodes|ntasks.*|cpus-per-.*|mem.*|time.*|mail-type")
_INTERPRETER = re.compile(r"\s*\w*#!\s*/[\w./]+")
_HEAD = 20  # lines in which a `#!` is looked for
_ONE_DASH = re.compile(r"-([a-z][a-z_-]{2,})(=.*)?")
_WITH_UNIT = re.compile(r"(\d+)\s*([a-z]+)", re.I)
_FEW = 1024  # megabytes, with which no training starts
_NO_JOB = re.compile(r"after(any|ok|notok|corr|burstbuffer)?:?")
_NO_SHORT_OPTION = frozenset("fgjlruyz")  # letters that sbatch has no option for
_TAKES_NO_VALUE = frozenset("ks")  # the next letter is another short option
_TAKES_ANY_TEXT = frozenset("oeipqJACDdwxML")  # sbatch takes the rest as a name, and what it names is missing later
_FLAGS = {
    "requeue", "no-requeue", "hold", "wait", "parsable", "quiet", "verbose", "contiguous", "overcommit", "spread-job",
    "use-min-nodes", "reboot", "ignore-pbs", "test-only", "exclusive", "oversubscribe", "nice",
}  # fmt: skip
_NEXT_PART = re.compile(r"(hetjob|packjob)\b")  # of a heterogeneous job
_PLACEHOLDER = re.compile(r"[<>{}@$`]|__|\.\.\.|…|\[[A-Z][A-Z _-]+\]")
_ADDRESS = re.compile(r"#SBATCH\s+(--([\w.+-]+@[\w.-]+\.\w+))\s*$")  # of mail, without the option before it
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_EMPTY = re.compile(r"^#SBATCH\s+--[a-z-]+=[ \t]*(#.*)?$", re.MULTILINE)
_TO_WRITE = re.compile(r"\s*<[^<>|&;$]*\s[^<>|&;$]*>\s*")  # `<your commands here>`
_PART_OF_A_SCRIPT = re.compile(
    r"header|preamble|prefix|common|snippet|fragment|include|options|settings", re.IGNORECASE
)


def refused_directives(file: File, script: ShellScript) -> Iterator[Problem]:
    """What is certain from a directive alone; a value with a variable in it is another finding."""
    yield from _dos_line_breaks(file)
    yield from _no_interpreter(file, script)
    lines = file.text.split("\n")
    above = _first_comments(file.text).split("\n")
    dashes = list(dashes_of_no_option(above))
    yield from dashes
    left_over = list(_extra_words(above, script, {one.span.line for one in dashes}))
    yield from left_over
    yield from refused_values(file, script)
    torn = {one.span.line for one in left_over}  # whose value is a part of what was meant
    for name, value in script.directives:
        written = _written(lines, value)
        if "$" not in value.value and written:
            yield from _dashes(name, value, written)
            yield from _blanks(name, value, written)
            yield from _equals_sign(value, written)
            yield from _value(name, value) if value.span.line not in torn else ()


def _written(lines: list[str], value: Value[str]) -> str:
    key = value.key
    return lines[key.line - 1][key.column - 1 : key.end_column - 1].rstrip("\r") if key is not None else ""


def _dos_line_breaks(file: File) -> Iterator[Problem]:
    at = file.text.find("\r\n")
    if at >= 0:
        number = file.text.count("\n", 0, at) + 1
        column = at - file.text.rfind("\n", 0, at)
        yield problem(
            Span(number, column, number, column + 1),
            "sbatch refuses DOS line breaks (CR LF)",
            f"convert the file: dos2unix, or sed -i 's/\\r$//'; and `{_same_kind(file.path)} text eol=lf` in "
            ".gitattributes",
            level="error",
            why=reasons.REFUSED,
        )


def _same_kind(path: str) -> str:
    """The files of this kind; of a name without an ending only itself, since `*` has binary files too."""
    return f"*{Path(path).suffix}" if Path(path).suffix else Path(path).name


def _no_interpreter(file: File, script: ShellScript) -> Iterator[Problem]:
    number = _late_interpreter(file.text)
    if number:
        what = "sbatch refuses a script whose first line does not begin with #!"
        fix = f"remove what stands before #! in line {number}"
        level: Level | None = "error" if file.path.endswith((".sbatch", ".slurm")) else None  # or a shell starts it
        yield problem(Span(1, 1, 1, 2), what, fix, level=level, why=reasons.REFUSED)
        return
    if not script.directives or file.text.startswith("#!") or file.path == "<stdin>" or is_template(file.text):
        return
    # Another script may begin with it, or its commands are still to be written.
    part = (
        not script.commands
        or _PART_OF_A_SCRIPT.search(Path(file.path).stem)
        or any(_TO_WRITE.fullmatch(line) for line in file.lines)
    )
    yield problem(
        Span(1, 1, 1, 2),
        "sbatch refuses a script whose first line does not begin with #!",
        "begin with #!/bin/bash",
        level="info" if part else "error" if file.path.endswith((".sbatch", ".slurm")) else None,
        why=reasons.REFUSED,
    )


def _late_interpreter(text: str) -> int:
    """The line of a `#!` that a blank line, prose or a stray word precedes; 0 where a text or a here-document may hold
    it, as in a script that writes another one."""
    for number, line in enumerate(text.split("\n", _HEAD)[:_HEAD], start=1):
        if line.startswith("#!") and number == 1:
            return 0
        if _INTERPRETER.match(line):
            behind = text.split("\n", number)[-1].lstrip("\n")
            return number if behind.startswith("#SBATCH") or "\n#SBATCH" in _first_comments(behind) else 0
        if "<<" in line or (re.search(r"[\"'`(]", line) and not re.fullmatch(r"#.*|```\w*", line.strip())):
            return 0
    return 0


def _first_comments(text: str) -> str:
    """The comments and blank lines that a text begins with."""
    lines = itertools.takewhile(lambda line: not line.strip() or line.startswith("#"), text.split("\n"))
    return "\n".join(lines)


def _extra_words(lines: list[str], script: ShellScript, refused: set[int]) -> Iterator[Problem]:
    """`--job-name=my job`: a word that is no option, or a quote that is not closed, where no line was refused yet."""
    last: dict[int, tuple[str, Value[str]]] = {}
    for name, value in script.directives:
        if value.key is not None:
            last[value.key.line] = (name, value)
    is_form = not script.commands or len(_EMPTY.findall(script.text)) > 1
    for number, line in enumerate(lines if last else (), start=1):
        if number in refused:
            continue
        address = _ADDRESS.match(line)
        if address is not None:
            at = Span(number, address.start(1) + 1, number, address.end(1) + 1)
            what = f"sbatch refuses the line: it has no option {address[1]}"
            yield problem(at, what, f"write --mail-user={address[2]}", level="error", why=reasons.REFUSED)
        if address is not None or not line.startswith("#SBATCH") or _PLACEHOLDER.search(_MAIL.sub("", line)):
            continue
        name, given = last.get(number, ("", None))
        if given is not None and _long_option(_written(lines, given)):
            continue  # another finding: sbatch stops at its value first
        column = len("#SBATCH") if given is None else _end_of_option(name, given, line)
        rest = line[column:].strip()
        if rest == "=" and (is_form or not _NOT_EMPTY.fullmatch(name)):
            continue  # an empty value, or one that is to be filled in
        if rest and rest[0] not in "#\\-" and not _NEXT_PART.match(rest):
            where = Span(number, line.index(rest, column) + 1, number, len(line) + 1)
            yield from refused_line(name, given, where, rest, flag=name in _FLAGS)


def _end_of_option(name: str, value: Value[str], line: str) -> int:
    """The column where an option of sbatch ends: one without a value takes none from behind a blank."""
    key = value.key or value.span
    written = line[key.column - 1 : key.end_column - 1]
    return key.column - 1 + len(name) + 2 if name in _FLAGS and " " in written else key.end_column - 1


def _dashes(name: str, value: Value[str], written: str) -> Iterator[Problem]:
    """`-ntasks-per-node=1` is the short option -n with the text that follows."""
    meant = _long_option(written)
    if meant:
        letter = meant[2]
        read = f"sbatch reads -{letter} with the value {written[2:]!r}"
        read = f"sbatch has no option -{letter}" if letter in _NO_SHORT_OPTION else read
        if letter in _TAKES_NO_VALUE:
            letter = written[2]
            read = f"sbatch reads {written[:2]} and then -{letter} with the value {written[3:]!r}"
        taken = letter in _TAKES_ANY_TEXT
        yield problem(
            value.key or value,
            f"{read}: a long option has two dashes",
            f"write {meant}",
            level=None if taken else "error",
            why=reasons.OTHER_OPTION if taken else reasons.REFUSED,
        )


def _long_option(written: str) -> str:
    """A long option as it must be written, where it has one dash; also with underscores, and a word too many."""
    match = _ONE_DASH.fullmatch(written)
    known = table()["sbatch"].takes_value if match is not None else ()
    plain = f"--{match[1].replace('_', '-')}" if match is not None else ""
    short = plain.replace("--n-tasks", "--ntasks").replace("--n-nodes", "--nodes")
    name = next((one for one in (plain, short) if one in known), "")
    return f"{name}{match[2] or ''}" if match is not None and name else ""


def _blanks(name: str, value: Value[str], written: str) -> Iterator[Problem]:
    """`--nodes = 4` and `--nodes= 4`: sbatch splits a line at its blanks, and refuses a word that is left over."""
    taken = value.value if re.match(r"--?[\w-]+\s+=", written) else None
    if taken is None and not re.match(r"--[\w-]+=\s+[\w./~]", written):
        return
    what = f"sbatch takes {taken!r} as the value of --{name}" if taken else f"--{name} gets an empty value"
    left_over = taken == "=" or taken is None
    yield problem(
        value.key or value,
        f"{what}: there must be no blank beside `=`",
        f"write --{name}=… without blanks",
        level="error" if left_over or _COUNTED.fullmatch(name) else None,
        why=reasons.REFUSED if left_over or _COUNTED.fullmatch(name) else reasons.OTHER_OPTION,
    )


def _equals_sign(value: Value[str], written: str) -> Iterator[Problem]:
    """`-N=2`: what follows the letter is the value, with its `=`."""
    match = re.fullmatch(r"-([A-Za-z])=(.+)", written)
    if match is not None and match[1] != "J":
        taken = match[1] in _TAKES_ANY_TEXT
        yield problem(
            value.key or value,
            f"sbatch takes {'=' + match[2]!r} as the value of -{match[1]}: a short option has no =",
            f"write -{match[1]} {match[2]}",
            level=None if taken else "error",
            why=reasons.OTHER_OPTION if taken else reasons.REFUSED,
        )


def _value(name: str, value: Value[str]) -> Iterator[Problem]:
    if name == "time" and UNITS.fullmatch(value.value):
        written = _WITH_UNIT.fullmatch(value.value)
        yield problem(
            value,
            f"sbatch refuses --time={value.value}: it takes no units",
            (with_unit(written[1], written[2]) if written else "") or "write days-hours:minutes:seconds",
            level="error",
            why=reasons.REFUSED,
        )
    if name in ("mem", "mem-per-cpu", "mem-per-gpu") and value.value.isdigit() and 0 < int(value.value) <= _FEW:
        yield problem(
            value,
            f"--{name}={value.value} without a unit is {value.value} MB, unless the site counts in GB",
            f"write --{name}={value.value}G",
            level="info",
        )
    if name == "dependency" and _NO_JOB.fullmatch(value.value):
        yield problem(
            value,
            f"sbatch refuses --dependency={value.value}: it names no job",
            f"remove it, and submit with sbatch --dependency={value.value.rstrip(':')}:<job id> …",
            level="error",
            why=reasons.REFUSED,
        )
