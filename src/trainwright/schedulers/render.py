"""Turning a launch into the text of a script."""

from __future__ import annotations

from pathlib import Path

from trainwright.schedulers.base import Launch
from trainwright.shell_templates import ScriptText, quote, shell_environment


def render_template(name: str, job: Launch, **more: object) -> str:
    """One template of this folder, filled in; every word that came from a user is quoted for the shell."""
    engine = shell_environment(Path(__file__).parent / "templates")
    engine.filters["home_path"] = home_path
    text = engine.get_template(name).render(job=job, command=command_lines(job.command), **more)
    return tidy(text)


def home_path(path: str) -> ScriptText:
    """A path as one word of bash; `~/` is the home folder of who runs the script."""
    return ScriptText(f'"$HOME"/{quote(path[2:])}' if path.startswith("~/") else quote(path))


def command_lines(command: tuple[str, ...]) -> str:
    """The rank's command, one option per line where it is long, so that a diff of two runs is short."""
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
