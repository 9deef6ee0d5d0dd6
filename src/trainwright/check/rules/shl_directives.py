"""SHL: #SBATCH lines that come too late, and directories for logs that nobody makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import reasons
from trainwright.check.beside import is_directory
from trainwright.check.model import File, ShellScript
from trainwright.check.registry import Problem, problem

READ_BESIDE, LARGEST = 20, 100_000  # files, bytes
_FOLDER = re.compile(r"(?!__)[\w.%][\w./% +=,:-]*(?<!%)")  # relative, and no placeholder such as @LOGS or <logs>


def misread_directives(file: File, script: ShellScript) -> Iterator[Problem]:
    if script.late_directives:
        first, *others = script.late_directives
        more = f" and the {len(others)} after it" if others else ""
        yield problem(
            first,
            f"Slurm stops reading #SBATCH lines at the first command and ignores this one{more}",
            "move them above the first command" if others else "move it above the first command",
            level=None if any(c.span.line > first.line for c in script.commands) else "info",  # put aside at the end
            why=reasons.LATE_DIRECTIVE,
        )
    for name, value in script.directives:
        folder = value.value.rpartition("/")[0]
        if name not in ("output", "error") or not folder or not _FOLDER.fullmatch(folder) or folder in (".", ".."):
            continue
        if name == "error" and any(
            n == "output" and v.value.rpartition("/")[0] == folder for n, v in script.directives
        ):
            continue
        mentioned = any("mkdir" in text or _says_it_exists(text, folder) for text in script.comments.values())
        if (
            file.path == "<stdin>"
            or mentioned
            or _exists(Path(file.path), folder)
            or _is_made_beside(Path(file.path), folder)
        ):
            continue
        yield problem(
            value,
            f"Slurm does not create the directory {folder}/: without it the job fails and leaves no log",
            f"run mkdir -p {folder} before sbatch, or write to slurm-%j.out",
            level=None if _is_made_inside(script, folder) else "info",  # it may exist where the job is submitted
            why=reasons.NO_LOG_DIRECTORY,
        )


def _exists(script: Path, folder: str) -> bool:
    """Whether the directory exists where a user would run sbatch."""
    places = [script.absolute().parent, *list(script.absolute().parents)[1:4], Path.cwd()]
    return any(is_directory(str(place / folder)) for place in places)


def _is_made_inside(script: ShellScript, folder: str) -> bool:
    """Whether the job itself makes the directory: its author expects that it may be missing."""
    name = folder.removeprefix("./").split("%")[0].rstrip("/")
    made = (word.value for c in script.commands if c.program == "mkdir" for word in c.words[1:])
    return any(name and f"/{name}/" in f"/{word.strip(chr(34)).removeprefix('./')}/" for word in made)


def _says_it_exists(comment: str, folder: str) -> bool:
    """Whether the author knows that the directory must be there (`submit from the root, so that logs/ exists`). A
    comment that explains a `mkdir` of the job does not count: it comes too late."""
    name = re.escape(folder.removeprefix("./").rstrip("/"))
    return (
        re.search(rf"(?<![\w/]){name}\b", comment) is not None
        and re.search(r"\b(exists?|create)\b", comment) is not None
        and re.search(r"\b(submit|sbatch|before|must|manually)\b|--output", comment, re.IGNORECASE) is not None
    )


def _is_made_beside(script: Path, folder: str) -> bool:
    """Whether another script of the directory makes it and submits jobs."""
    wanted = re.compile(rf"mkdir (-p )?[\"']?(\./)?{re.escape(folder.removeprefix('./'))}")
    for other in sorted(script.absolute().parent.glob("*.sh"))[:READ_BESIDE]:
        if other.name != script.name and other.stat().st_size < LARGEST:
            text = other.read_text(encoding="utf-8", errors="replace")
            if "sbatch" in text and wanted.search(text):
                return True
    return False
