"""The folders that a command of a script may run in, as seen from the files beside it: a script is called from its own
folder or the one above, and `cd` moves it. Files are looked up there, and nowhere else."""

from __future__ import annotations

import os
import re

from trainwright.check.beside import is_directory, text_beside
from trainwright.check.model import Command, File

_OWN_FOLDER = re.compile(r"dirname|BASH_SOURCE|\$0")
_WHERE_IT_WAS = re.compile(r"(\$\{?(PWD|SLURM_SUBMIT_DIR)\b\}?|\$\(pwd\)|\.)(?=/|$)")
_ANCESTORS = 3  # of the script, that an absolute path may name
_MOST_MOVES = 20  # of one script: nobody follows more


def folders_of(file: File, command: Command) -> list[str]:
    """Where the command may run; nothing where the file does not show it."""
    runner = command.runner
    in_container = runner is not None and (runner.program == "docker" or "container_image" in runner.options)
    if file.path == "<stdin>" or in_container:
        return []
    own = os.path.dirname(os.path.abspath(file.path))
    folders = [own, os.path.dirname(own)]
    targets = _targets(file, command)
    if len(targets) > _MOST_MOVES:
        return []
    for target in targets:
        folders = _moved(folders, own, target)
    return folders


def program_text(file: File, launch: Command) -> str | None:
    """The text of the program that a command starts, where it lies beside; empty where it cannot be read."""
    name = next((word.value for word in launch.words if word.known and word.value.endswith(".py")), "")
    return text_beside(file.path, name, folders_of(file, launch))


def _targets(file: File, command: Command) -> list[str]:
    """The arguments of each `cd` before the command, and of sbatch's --chdir."""
    script = next((one for one in file.scripts if any(c is command for c in one.commands)), None)
    if script is None:
        return []
    targets = [value.value for name, value in script.directives if name == "chdir"]
    for earlier in script.commands:
        if earlier is command or len(targets) > _MOST_MOVES:
            break
        if earlier.program in ("cd", "pushd", "popd"):
            words = [word.value for word in earlier.words[1:] if word.value not in ("--", "-P", "-L")]
            targets.append(words[0] if words else "")
    return targets


def _moved(folders: list[str], own: str, target: str) -> list[str]:
    if _OWN_FOLDER.search(target):
        above = target.count("..") + max(0, target.count("dirname") - 1)
        tail = re.sub(r".*[)}\"']", "", target).replace("..", "").strip("/")
        start = os.path.normpath(os.path.join(own, *[".."] * above))
        return [os.path.join(start, tail)] if tail else [start]
    there = _WHERE_IT_WAS.match(target)
    if there is not None:
        target = target[there.end() :].lstrip("/") or "."
    if target and not target.startswith(("/", "~", "$", "-")) and "$" not in target:
        moved = [os.path.normpath(os.path.join(folder, target)) for folder in folders]
        return [folder for folder in moved if is_directory(folder)]
    name = target.rstrip("/").rpartition("/")[2]
    return [folder for folder in _ancestors(own) if os.path.basename(folder) == name][:1]


def _ancestors(folder: str) -> list[str]:
    """The folder and those above it."""
    folders = [folder]
    while len(folders) < _ANCESTORS:
        folders.append(os.path.dirname(folders[-1]))
    return folders
