"""Turning a launch into the text of a script; the only place that knows the template engine."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainwright.schedulers.base import Launch, in_control


def render_template(name: str, job: Launch, **more: object) -> str:
    """One template of this folder, filled in; every word that came from a user is quoted for the shell."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    engine = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    engine.filters["quote"] = lambda value: quote(str(value))
    text = engine.get_template(name).render(job=job, command=command_lines(job.command), **more)
    return tidy(text)


def quote(text: str) -> str:
    """A text as one word of bash, on one line whatever it holds: the one function that quotes what reaches a script."""
    if not any(in_control(letter) for letter in text):
        return shlex.quote(text)
    return "$'" + "".join(_escaped(letter) for letter in text) + "'"


def _escaped(letter: str) -> str:
    if in_control(letter):
        return "".join(f"\\x{byte:02x}" for byte in letter.encode())  # as bytes: the job's locale may be any
    return f"\\{letter}" if letter in "\\'" else letter


def command_lines(command: tuple[str, ...]) -> str:
    """The rank's command, an option a line where it is long, so that two runs compare well."""
    words = [quote(word) for word in command]
    if len(" ".join(words)) < 90:
        return " ".join(words)
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(" ".join(line) for line in lines)


def tidy(text: str) -> str:
    """Without the runs of empty lines that optional parts leave behind."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"
