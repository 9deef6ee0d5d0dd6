"""SHL: #SBATCH lines that come too late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File, ShellScript
from trainwright.check.readers.shell import options_of_line
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.shl_logs import missing_log_directories
from trainwright.spec.source import Span

_PUT_ASIDE = re.compile(
    r"e\.g\b|\bexample|instead|alternativ|comment|optional|disabled|unused|\bold\b|\bto (use|run)\b|\buse:|\bif you",
    re.IGNORECASE,
)


def misread_directives(file: File, script: ShellScript) -> Iterator[Problem]:
    late = [span for span in script.late_directives if not _has_no_effect(file, script, span)]
    if late:
        first, *others = late
        more = f" and the {len(others)} after it" if others else ""
        meant = any(c.span.line > first.line for c in script.commands) and not _PUT_ASIDE.search(
            script.comments.get(first.line - 1, "")
        )
        yield problem(
            first,
            f"Slurm stops reading #SBATCH lines at the first command and ignores this one{more}",
            "move them above the first command" if others else "move it above the first command",
            level=None if meant else "info",  # put aside at the end, or shown as an example
            why=reasons.LATE_DIRECTIVE,
        )
    yield from missing_log_directories(file, script)


def _has_no_effect(file: File, script: ShellScript, span: Span) -> bool:
    """A line that repeats what the top says, or is of a second script in the file."""
    lines = file.text.split("\n")
    if any(line.startswith("#!") for line in lines[1 : span.line]) or re.match(r"\w+#!", lines[0]):
        return True
    said = dict(script.directives)
    options = options_of_line(lines[span.line - 1].rstrip("\r"), span.line)
    return bool(options) and all(name in said and said[name].value == value.value for name, value in options)
