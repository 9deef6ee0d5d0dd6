"""The folders that a command of a script may run in, as seen from the files beside it: a script is called from its own
folder or the one above, and `cd` moves it. Files are looked up there, and nowhere else."""

from __future__ import annotations

import os
import re

from trainwright.check.beside import is_directory, text_beside
from trainwright.check.model import Command, File, ShellScript

_OWN_FOLDER = re.compile(r"dirname|BASH_SOURCE|\$0")
_WHERE_IT_WAS = re.compile(r"(\$\{?(PWD|SLURM_SUBMIT_DIR)\b\}?|\$\(pwd\)|\.)(?=/|$)")
# A directory of the cluster, the same for every run; any other variable may choose between several.
_AWAY = re.compile(r"(/|~/|\$\{?HOME\}?/)([^$`*]|\$\{?USER\}?)*")
_FETCHES = re.compile(r"\bgit\s+clone\b|\btar\s+-?\w*x|\bunzip\b")  # other files than those beside the script
_ANCESTORS = 3  # of the script, that an absolute path may name
_MOST_MOVES = 20  # of one script: nobody follows more


def folders_of(file: File, command: Command) -> list[str]:
    """Where the command may run; nothing where the file does not show it."""
    if not _is_outside(file, command):
        return []
    own = os.path.dirname(os.path.abspath(file.path))
    folders = [own, os.path.dirname(own)]
    targets = _targets(file, command)
    if len(targets) > _MOST_MOVES:
        return []
    for target in targets:
        folders = _moved(folders, own, target)
    return folders


def deployed_folders(file: File, command: Command) -> tuple[list[str], str]:
    """The folders of the script, where it goes to an absolute directory that this machine does not have, and that
    directory: the files there may be a copy of those here. Nothing where `folders_of` knows the place."""
    script = file.derived(_numbers).get(id(command), (None, 0))[0]
    if script is None or not _is_outside(file, command) or script.derived(_fetches):
        return [], ""
    own = os.path.dirname(os.path.abspath(file.path))
    start = [own, os.path.dirname(own)]
    folders, away = start, ""
    for target in _targets(file, command)[:_MOST_MOVES]:
        folders = _moved(folders, own, target)
        if _AWAY.fullmatch(target):
            away = "" if folders or is_directory(os.path.expanduser(target)) else target
            folders = start if away else folders
    return (folders, away) if away else ([], "")


def _fetches(script: ShellScript) -> bool:
    return _FETCHES.search(script.text) is not None


def submit_folders(file: File, command: Command) -> list[str]:
    """Where sbatch may have been called for a script; nothing for a command in a container, which has other paths."""
    if not _is_outside(file, command):
        return []
    own = os.path.dirname(os.path.abspath(file.path))
    return [own, os.path.dirname(own)]


def _is_outside(file: File, command: Command) -> bool:
    runner = command.runner
    in_container = runner is not None and (runner.program == "docker" or "container_image" in runner.options)
    return file.path != "<stdin>" and not in_container


def program_text(file: File, launch: Command, folders: list[str] | None = None) -> str | None:
    """The text of the program that a command starts, where it lies beside, or in `folders`; empty where it cannot be
    read."""
    name = next((word.value for word in launch.words if word.known and word.value.endswith(".py")), "")
    return text_beside(file.path, name, folders or folders_of(file, launch))


def _targets(file: File, command: Command) -> list[str]:
    """The arguments of sbatch's --chdir, and of each `cd` before the command in its own shell and those around it."""
    script, number = file.derived(_numbers).get(id(command), (None, 0))
    if script is None:
        return []
    moves = script.derived(_moves)
    earlier = [move for shell in _shells(command) for move in moves.get(shell, ()) if move[0] < number]
    given = [value.value for name, value in script.directives if name == "chdir"]
    return given + [target for _, target in sorted(earlier)]


def _numbers(file: File) -> dict[int, tuple[ShellScript, int]]:
    """The script of each command, by its identity, and its number there."""
    return {id(one): (script, number) for script in file.scripts for number, one in enumerate(script.commands)}


def _moves(script: ShellScript) -> dict[int, list[tuple[int, str]]]:
    """The number and the argument of each `cd`, by the identity of the subshell that it moves."""
    moves: dict[int, list[tuple[int, str]]] = {}
    for number, command in enumerate(script.commands):
        if command.program in ("cd", "pushd", "popd"):
            words = [word.value for word in command.words[1:] if word.value not in ("--", "-P", "-L")]
            moves.setdefault(id(command.subshell), []).append((number, words[0] if words else ""))
    return {shell: several[: _MOST_MOVES + 1] for shell, several in moves.items()}


def _shells(command: Command) -> list[int]:
    """The identities of the shells that a command runs in, from its own to the script's."""
    shells, shell = [id(command.subshell)], command.subshell
    while shell is not None and len(shells) <= _MOST_MOVES:
        shell = shell.outer
        shells.append(id(shell))
    return shells


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
