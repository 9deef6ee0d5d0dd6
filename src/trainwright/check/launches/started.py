"""Scripts that the srun of a batch script starts on its nodes, seen from either of the two files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainwright.check import around
from trainwright.check.beside import file_at
from trainwright.check.launches.steps import copies, is_whole_job
from trainwright.check.launches.working_directory import deployed_folders, folders_of
from trainwright.check.model import Command, File, ShellScript, Value, known

_RUNS = re.compile(r"\bsrun\b")


def scripts_of_srun(script: ShellScript) -> list[tuple[Command, Value[str]]]:
    """The commands that srun starts on all nodes of the job and that are a script, with its name."""
    started = []
    for command in script.commands:
        at = next((word for word in command.words[:2] if word.known and word.value.endswith(".sh")), None)
        whole_job = command.runner is not None and is_whole_job(command.runner)
        if at is not None and command.inside_srun and not command.branch and whole_job:
            started.append((command, at))
    return started


def nodes_that_run(file: File) -> int | None:
    """How many tasks of a batch script run a shell script, where one starts it by srun and no file otherwise."""
    return file.derived(_tasks_of_starter)


def _tasks_of_starter(file: File) -> int | None:
    if file.format != "shell" or file.path == "<stdin>":
        return None
    path = Path(file.path).absolute()
    others = [(place, text) for place, text in around.texts(str(path.parent)) if place != path]
    mentions = [(place, text) for place, text in others if _names(path.name, text, around.is_document(place))]
    started = [next(_counts(str(place), path), None) for place, text in mentions if _RUNS.search(text)]
    if len(started) != len(mentions) or len(set(started)) != 1:
        return None  # what else starts it may start it once
    return started[0]


def _names(name: str, text: str, document: bool) -> bool:
    """Whether a line that is no comment has the name; in a text for readers, one that starts it."""
    started = r"(\b(bash|sh|source)\s+(\S*/)?|\./)" if document else r"(?<![\w.-])"
    named = re.compile(rf"{started}{re.escape(name)}(?![\w-])")
    return name in text and any(named.search(line) and not line.lstrip().startswith("#") for line in text.split("\n"))


def _counts(place: str, path: Path) -> Iterator[int]:
    other = file_at(place)
    for job in other.jobs if other is not None and other.format == "sbatch" else ():
        for command, at in job.script.derived(scripts_of_srun) if job.script is not None else ():
            count = known(copies(replace(job, launch=command)))
            if count is not None and other is not None and _is_there(other, command, at.value, path):
                yield count


def _is_there(other: File, command: Command, name: str, path: Path) -> bool:
    """Whether the name that srun is given is that of the file; an absolute one may be a copy of it."""
    if name.startswith("/"):
        return os.path.basename(name) == path.name
    folders = folders_of(other, command) or deployed_folders(other, command)[0]
    return any(os.path.normpath(os.path.join(folder, name)) == str(path) for folder in folders)
