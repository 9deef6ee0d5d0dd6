"""Whether anything of a repository uses a trainer's configuration: a file that no program or command names, and one
that every launch sets aside, trains nothing. What is wrong in it is a note."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around
from trainwright.check.model import File

_PROGRAMS = (".py", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".sbatch", ".slurm", ".job", *around.RUNNERS)
# In a text for readers only a command or a setting uses a file; a tree or a list of files describes it.
_COMMAND = re.compile(
    r"--\w|\b(accelerate|deepspeed|torchrun|python3?|sbatch|bash|sh)\s|\b\w*(config|deepspeed)\w*\s*[=:]\s*\S"
)
_BY_VARIABLE = re.compile(  # `--deepspeed configs/$CONFIG`, `f"configs/zero{stage}.json"`
    r"(config|deepspeed|zero)[^\n]{0,60}\$\{?\w+[^\n]{0,40}(\.(json|ya?ml)|[\"'\s]|$)"
    r"|f[\"'][^\n]{0,80}\{\w+\}[^\n]{0,80}\.(json|ya?ml)"
)
_CONTINUED = re.compile(r"\\\r?\n")
# With these accelerate reads no part of the file that is about DeepSpeed.
_WITHOUT_DEEPSPEED = re.compile(r"--(multi_gpu|use_fsdp|cpu|tpu|use_megatron_lm)\b")


def is_unused(file: File) -> bool:
    """Whether programs lie around a configuration, and none of them, nor a command of a text, may read it."""
    path = Path(file.path).absolute()
    others = [(place, text) for place, text in around.texts(str(path.parent)) if place != path]
    if not any(place.name.endswith(_PROGRAMS) for place, _ in others):
        return False
    return not any(_uses(place, text, path) for place, text in others)


def _uses(place: Path, text: str, path: Path) -> bool:
    if not place.name.endswith(_PROGRAMS):
        return any(path.name in line and _COMMAND.search(line) for line in _lines(text))
    return path.stem in text or _BY_VARIABLE.search(text) is not None


def is_without_deepspeed(path: str) -> bool:
    """Whether every command that gives this file to accelerate chooses something else than DeepSpeed."""
    name = Path(path).name
    texts = (text for _, text in around.texts(str(Path(path).absolute().parent)) if name in text)
    launches = [line for text in texts for line in _lines(text) if name in line and "accelerate launch" in line]
    return bool(launches) and all(_WITHOUT_DEEPSPEED.search(line) for line in launches)


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; one that a backslash continues is whole."""
    yield from _CONTINUED.sub(" ", text).split("\n")
