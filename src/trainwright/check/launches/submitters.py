"""How other files of the repository submit a batch script. Options of the command line win over its directives: a
size that a README or a wrapper gives is not the one of the script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around
from trainwright.check.model import File
from trainwright.check.readers.shell import options_of_line, request

_TASKS = frozenset({"nodes", "ntasks", "ntasks-per-node", "tasks-per-node"})
# The options that decide a rule's findings, under the names of `request`.
_DECIDED_BY = {
    "JOB001": _TASKS | {"gpus", "exclusive"},
    "JOB002": _TASKS,
    "JOB003": _TASKS,
    "JOB006": _TASKS | {"gpus", "cpus-per-task", "cpus-per-gpu", "exclusive"},
    "JOB008": _TASKS,
    "JOB009": _TASKS,
    "JOB016": _TASKS | {"gpus"},
}
_CONTINUED = re.compile(r"\\\r?\n")
_CALL = re.compile(r"\bsbatch\b(?P<options>[^\n;&|`]*)")
_MARKS = re.compile(r"[\"',\[\]()]")  # of a list in Python
_VARIABLE = re.compile(r"\s\"?\$\{?\w+\}?\"?(\s|$)")


def is_decided_elsewhere(code: str, file: File) -> bool:
    """Whether another file submits the script with a size that the rule has judged by the script alone, or it is not
    submitted at all: srun reads no directives."""
    if file.format != "sbatch" or file.path == "<stdin>":
        return False
    if code == "SLU006":
        return file.derived(is_run_by_srun)
    decided_by = _DECIDED_BY.get(code)
    return decided_by is not None and not decided_by.isdisjoint(given_elsewhere(file))


def is_run_by_srun(file: File) -> bool:
    """Whether comments and other files start the script by `srun … bash script` only."""
    path = Path(file.path).absolute()
    name = re.escape(path.name)
    started = re.compile(rf"\bsrun\b[^\n;|]*\b(bash|sh)\s+(\S*/)?{name}\b")
    submitted = re.compile(rf"\bsbatch\b[^\n;|]*{name}\b")
    texts = [file.text, *(text for _, text in around.texts(str(path.parent)) if path.name in text)]
    return any(map(started.search, texts)) and not any(map(submitted.search, texts))


def given_elsewhere(file: File) -> frozenset[str]:
    """The options that another file gives with another value than the script."""
    return file.derived(_other_sizes)


def _other_sizes(file: File) -> frozenset[str]:
    own = {request(name, value) for script in file.scripts for name, value in script.directives}
    path = Path(file.path).absolute()
    given = {one for _, text in around.texts(str(path.parent)) for one in _given(path.name, text)}
    return frozenset(name for name, value in given if (name, value) not in own)


def _given(script: str, text: str) -> Iterator[tuple[str, str]]:
    if "sbatch" not in text or script not in text:
        return
    for call in _CALL.finditer(_CONTINUED.sub(" ", text)):
        options = call["options"]
        if script in options or _VARIABLE.search(options):
            line = f"#SBATCH {_MARKS.sub(' ', options)}"
            yield from (request(name, value) for name, value in options_of_line(line, 0))
