"""SHL: #SBATCH lines that come too late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.submitters import is_run_by_srun
from trainwright.check.model import File, ShellScript
from trainwright.check.readers.shell import options_of_line
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.shl_logs import missing_log_directories

_PUT_ASIDE = re.compile(
    r"e\.g\b|\bexample|instead|alternativ|comment|optional|disabled|unused|\bold\b|\bto (use|run)\b|\buse:|\bif you",
    re.IGNORECASE,
)

_IN_A_DIRECTORY = re.compile(
    r"#SBATCH\s.*(?:--(?:output|error)[= ]|-[oe] ?)[\"']?(?:\./)?([\w./-]*[\w-])/[^/\s]+\s*(?:#|$)"
)


def misread_directives(file: File, script: ShellScript) -> Iterator[Problem]:
    if script.directives and file.path != "<stdin>" and file.derived(is_run_by_srun):
        return  # which reads no directives, and opens no log for them
    said = {name: value.value for name, value in script.directives}
    second = next((number for number, line in enumerate(file.lines[1:], start=2) if line.startswith("#!")), None)
    if re.match(r"\w+#!", file.lines[0]):
        second = 1  # `bash#!/bin/bash`, which sbatch refuses
    # what stands behind a second `#!` is of another script in the file
    late = [
        span
        for span in script.late_directives
        if (second is None or span.line < second) and not _repeats(file.lines[span.line - 1], said)
    ]
    if late:
        first, *others = late
        more = f" and the {len(others)} after it" if others else ""
        begins = file.lines[0].startswith("#!") or second is not None  # else sbatch refuses the file as a whole
        follows = any(c.span.line > first.line for c in script.commands)
        meant = begins and follows and not _PUT_ASIDE.search(script.comments.get(first.line - 1, ""))
        yield problem(
            first,
            f"Slurm stops reading #SBATCH lines at the first command and ignores this one{more}",
            _fix([file.lines[span.line - 1] for span in late]),
            level=None if meant else "info",  # put aside at the end, or shown as an example
            why=reasons.LATE_DIRECTIVE,
        )
    yield from missing_log_directories(file, script)


def _fix(lines: list[str]) -> str:
    """Moved up, a variable would stay the letters of its name."""
    with_variable = [line for line in lines if "$" in line.partition(" #")[0]]
    if len(with_variable) == len(lines):
        them = "it" if len(lines) == 1 else "them"
        return f"pass {them} to sbatch: Slurm expands no variable in these lines"
    what = "move it above the first command" if len(lines) == 1 else "move them above the first command"
    what += ", and pass to sbatch what has a variable" if with_variable else ""
    folder = next((match[1] for line in lines if (match := _IN_A_DIRECTORY.match(line))), "")
    return f"{what}, and make {folder}/ before you submit: Slurm opens the log first" if folder else what


def _repeats(line: str, said: dict[str, str]) -> bool:
    """Whether a line only repeats what the top of the script says."""
    options = options_of_line(line.rstrip("\r"), 1)
    return bool(options) and all(said.get(name) == value.value for name, value in options)
