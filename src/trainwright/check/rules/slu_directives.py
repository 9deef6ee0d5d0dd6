"""SLU: #SBATCH lines that sbatch refuses or reads in another way than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, ShellScript, Value
from trainwright.check.options import table
from trainwright.check.readers.templates import is_template
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_COUNTED = re.compile(r"nodes|ntasks.*|cpus-per-.*|gpus.*|gres|mem.*|time|array")  # sbatch refuses a text here
_ONE_DASH = re.compile(r"-([a-z][a-z-]{2,})(=.*)?")
_UNITS = re.compile(r"(\d+\s*(d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?))+", re.I)
_HOURS = re.compile(r"(\d+)\s*h(rs?|ours?)?", re.I)
_FEW = 1024  # megabytes, with which no training starts
_NO_JOB = re.compile(r"after(any|ok|notok|corr|burstbuffer)?:?")


def refused_directives(file: File, script: ShellScript) -> Iterator[Problem]:
    """What is certain from a directive alone; a value with a variable in it is another finding."""
    yield from _dos_line_breaks(file)
    yield from _no_interpreter(file, script)
    lines = file.text.split("\n")
    for name, value in script.directives:
        written = _written(lines, value)
        if "$" not in value.value and written:
            yield from _dashes(name, value, written)
            yield from _blanks(name, value, written)
            yield from _value(name, value)


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
            "convert the file: dos2unix, or sed -i 's/\\r$//'; and `*.sbatch text eol=lf` in .gitattributes",
            level="error",
        )


def _no_interpreter(file: File, script: ShellScript) -> Iterator[Problem]:
    if script.directives and not file.text.startswith("#!") and file.path != "<stdin>" and not is_template(file.text):
        yield problem(
            Span(1, 1, 1, 2),
            "sbatch refuses a script whose first line does not begin with #!",
            "begin with #!/bin/bash",
            level="error" if file.path.endswith((".sbatch", ".slurm")) else None,
        )


def _dashes(name: str, value: Value[str], written: str) -> Iterator[Problem]:
    """`-ntasks-per-node=1` is the short option -n with the text that follows."""
    match = _ONE_DASH.fullmatch(written)
    if match is not None and f"--{match[1]}" in table()["sbatch"].takes_value:
        yield problem(
            value.key or value,
            f"sbatch reads -{match[1][0]} with the value {written[2:]!r}: a long option has two dashes",
            f"write -{written}",
            level="error",
        )


def _blanks(name: str, value: Value[str], written: str) -> Iterator[Problem]:
    """`--nodes = 4` and `--nodes= 4`: sbatch splits a line at its blanks."""
    taken = value.value if re.match(r"--?[\w-]+\s+=", written) else None
    if taken is None and not re.match(r"--[\w-]+=\s+\w", written):
        return
    what = f"sbatch takes {taken!r} as the value of --{name}" if taken else f"--{name} gets an empty value"
    yield problem(
        value.key or value,
        f"{what}: there must be no blank beside `=`",
        f"write --{name}=… without blanks",
        level="error" if _COUNTED.fullmatch(name) else None,
    )


def _value(name: str, value: Value[str]) -> Iterator[Problem]:
    if name == "time" and _UNITS.fullmatch(value.value):
        hours = _HOURS.fullmatch(value.value)
        yield problem(
            value,
            f"sbatch refuses --time={value.value}: it takes no units",
            f"write {hours[1]}:00:00" if hours else "write days-hours:minutes:seconds",
            level="error",
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
            f"write {value.value.rstrip(':')}:<job id>, on the command line: sbatch --dependency=…",
            level="error",
        )
