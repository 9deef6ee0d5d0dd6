"""Jobs whose output a script keeps in a variable: `result=$(srun all_reduce_perf …)`. The commands inside are read as
if they stood alone, at their places."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.check.model import File, Job
from trainwright.check.readers.shell import jobs_in
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import whole_text

_CAPTURE = re.compile(
    r"^(?P<before>[ \t]*(?:if[ \t]+!?[ \t]*)?(?:(?:local|declare|readonly|export)[ \t]+)?[A-Za-z_]\w*=\"?\$\()"
    r"(?=[ \t\\\n]*(?:srun|mpirun|mpiexec)\b)",
    re.MULTILINE,
)
_CLOSING = re.compile(r"\)\"?")
_BRACKETS = re.compile(r"\\.|'[^']*'|[()]", re.DOTALL)


def captured_jobs(file: File) -> list[Job]:
    """The launches inside `NAME=$( … )` of a script, none of those that run anyway."""
    script = file.scripts[0] if file.format in ("sbatch", "shell") and len(file.scripts) == 1 else None
    text = _uncaptured(file.text) if script is not None else file.text
    if script is None or text == file.text:
        return []
    alone = replace(read_script(whole_text(text), file.format), directives=script.directives)
    known = {job.launch.span for job in file.jobs if job.launch is not None}
    return [job for job in jobs_in(alone) if job.launch is not None and job.launch.span not in known]


def _uncaptured(text: str) -> str:
    """The text with blanks in place of `NAME=$(` and its `)`, so that every place stays the same. An opening that is
    never closed leaves those behind it inside."""
    parts, end = [], 0
    for match in _CAPTURE.finditer(text):
        if match.start() < end:
            continue
        closing = _closing(text, match.end())
        if closing is None:
            break
        parts += [text[end : match.start()], " " * len(match["before"]), text[match.end() : closing.start()]]
        parts.append(" " * len(closing[0]))
        end = closing.end()
    return "".join([*parts, text[end:]])


def _closing(text: str, inside: int) -> re.Match[str] | None:
    depth = 1
    for bracket in _BRACKETS.finditer(text, inside):
        depth += {"(": 1, ")": -1}.get(bracket[0], 0)
        if not depth:
            return _CLOSING.match(text, bracket.start())
    return None
