"""JOB: the tasks of a job array train different things, and must not write to one place."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from trainwright.check.launches.trainers import HUGGING_FACE, MEGATRON, MEGATRON_DEEPSPEED, trainer_of
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, File, Job, Value, stated
from trainwright.check.programs.saved_paths import saves_below
from trainwright.check.registry import Problem, problem

_TASK = "SLURM_ARRAY_TASK_ID"
_SEVERAL = re.compile(r"\d+-\d+|\d+,\d+")
_ONE_AT_A_TIME = re.compile(r"%0*1$")
_FILE = re.compile(r"\.(pt|pth|ckpt|bin|safetensors|pkl)$")
_WRITTEN = re.compile(r"(save|out)(put)?([_-]?(model|path|file|to|ckpt|checkpoint))*")
_MAYBE_WRITTEN = re.compile(r"(checkpoint|ckpt)([_-]?(path|file))?")  # or read: the script makes its directory
# Not SLURM_JOB_ID and TMPDIR, which each task has for itself.
_OF_ALL_TASKS = re.compile(
    r"\$\{?(HOME|USER|SCRATCH|WORK|PROJECT|STORE|SLURM_SUBMIT_DIR|SLURM_ARRAY_JOB_ID)(\}|(?![\w}:]))"
)
# A part of one run or of one data set: the parts may share a directory.
_PART = re.compile(r"rank|shard|part|chunk|node|worker|split|index|slice|start|offset|task")
_TRAINERS = (HUGGING_FACE, MEGATRON, MEGATRON_DEEPSPEED)
_OVERWRITTEN = (
    "the tasks run at the same time and save under the same names: each overwrites the checkpoints of the others, and "
    "what resumes continues another's run. Of 6 learning rates 1 result is left."
)


def shared_by_tasks(file: File, job: Job) -> Iterator[Problem]:
    """A place for checkpoints that is the same for all tasks of an array, although they train with other values."""
    array, launch = job.directives.get("array"), job.launch
    if array is None or launch is None or not _SEVERAL.search(array.value) or _ONE_AT_A_TIME.search(array.value):
        return
    varied = [name for name, value in launch.options.items() if _TASK in value.value]
    if not varied or any(_PART.search(name) for name in varied) or launch.branch:
        return
    where, folder = _place(job, launch), None if _has_own_files(launch) else _folder(file, launch)
    where = where or folder
    if where is None or (not where.value.startswith(("/", "$")) and _has_own_folder(job)):
        return
    yield problem(
        where,
        f"all tasks of the array write to {where.value}, with another --{varied[0]} each",
        f"add ${_TASK} to the path",
        level="warning" if where is folder or _is_taken_as_given(file, job, launch, where) else "info",
        why=_OVERWRITTEN,
    )


def _has_own_files(launch: Command) -> bool:
    """Whether a container of each task has another directory at the same path."""
    runner = launch.runner
    while runner is not None:
        if any(_TASK in word.value for word in runner.words):
            return True
        runner = runner.runner
    return False


def _has_own_folder(job: Job) -> bool:
    """Whether each task may run in a directory of its own."""
    moves = (word for one in job.commands if one.program in ("cd", "pushd") for word in one.words[1:])
    return any(not word.known for word in moves)


def _folder(file: File, launch: Command) -> Value[str] | None:
    """The directory below which the program, which is at hand, saves under names that are the same for all tasks."""
    given = [(name, value) for name, value in launch.options.items() if "/" in value.value and _is_same_for_all(value)]
    text = program_text(file, launch) if given else None
    return next((value for name, value in given if text and saves_below(text, name.replace("-", "_"))), None)


def _is_taken_as_given(file: File, job: Job, launch: Command, where: Value[str]) -> bool:
    """Whether the program writes to the path that it is given. One that is not at hand, or makes other paths of it, may
    add what makes each run another."""
    if trainer_of(job) in (MEGATRON, MEGATRON_DEEPSPEED):
        return True
    text = program_text(file, launch) or ""
    name = next((name for name, value in launch.options.items() if value is where), "")
    changed = rf"(join\(|\{{|\+|Path\()[^\n]*\b{name}\b|\b{name}\b[^\n]*(\s[+/]\s|\.format)|\.{name}\s*="
    return bool(name) and name in text and re.search(changed, text) is None


def _place(job: Job, launch: Command) -> Value[str] | None:
    """Where the job saves, where that is certain: of a trainer that is known, or a single file."""
    if trainer_of(job) in _TRAINERS and job.checkpoint_dir is not None:
        return job.checkpoint_dir if stated(job.checkpoint_dir) is not None else None
    for name, value in launch.options.items():
        if not _is_same_for_all(value) or not _FILE.search(value.value):
            continue
        if _WRITTEN.fullmatch(name) or (_MAYBE_WRITTEN.fullmatch(name) and _is_made(job, value.value)):
            return value
    return None


def _is_same_for_all(value: Value[str]) -> bool:
    """Whether each task has the same path: it is written out, up to variables of the user or of the whole array."""
    return not value.default and (value.known or "$" not in _OF_ALL_TASKS.sub("", value.value))


def _is_made(job: Job, path: str) -> bool:
    """Whether the script makes the directory of a file."""
    made = (word.value for one in job.commands if one.program == "mkdir" for word in one.words[1:])
    return posixpath.dirname(path) in {one.rstrip("/") for one in made}
