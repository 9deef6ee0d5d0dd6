"""Whether anything of a repository uses a trainer's configuration: a file that no program or command names, and one
that every launch sets aside, trains nothing. What is wrong in it is a note."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around
from trainwright.check.model import File

_DOCUMENTS = (".md", ".rst", ".txt", ".adoc")
# In a text for readers only a command or a setting uses a file; a tree or a list of files describes it.
_COMMAND = re.compile(
    r"--\w|\b(accelerate|deepspeed|torchrun|python3?|sbatch|bash|sh)\s|\b\w*(config|deepspeed)\w*\s*[=:]\s*\S"
)
_BY_VARIABLE = re.compile(  # `--deepspeed configs/$CONFIG`, `f"configs/zero{stage}.json"`, `"ds_" + name + ".json"`
    r"(config|deepspeed|zero)[^\n]{0,60}\$\{?\w+[^\n]{0,40}(\.(json|ya?ml)|[\"'\s]|$)"
    r"|f[\"'][^\n]{0,80}\{\w+\}[^\n]{0,80}\.(json|ya?ml)|\+\s*[\"'][^\n\"']{0,40}\.(json|ya?ml)|\*\.(json|ya?ml)"
)
_CONTINUED = re.compile(r"\\\r?\n")
# With these accelerate reads no part of the file that is about DeepSpeed.
_WITHOUT_DEEPSPEED = re.compile(r"--(multi_gpu|use_fsdp|cpu|tpu|use_megatron_lm)(?![\w-])")
_PROGRAM = re.compile(r"\s(\S+\.py\b|-m\s)")
_FEWEST, _MOST = 2, 400  # files of a repository that is read whole; of a larger one nothing is concluded


def is_unused(file: File) -> bool:
    """Whether a repository is here, small enough to be read whole, and nothing in it may read the configuration."""
    path = Path(file.path).absolute()
    above, rooted = around.folders_above(str(path))
    others = around.whole(str(above[-1]), _MOST) if rooted else None
    if others is None or len(others) < _FEWEST:
        return False
    return not any(_uses(place, text, path) for place, text in others if place != path)


def _uses(place: Path, text: str, path: Path) -> bool:
    if place.name.endswith(_DOCUMENTS):
        return any(path.name in line and _COMMAND.search(line) for line in _lines(text))
    return path.stem in text or _BY_VARIABLE.search(text) is not None


def is_without_deepspeed(path: str) -> bool:
    """Whether every command that gives this file to accelerate chooses something else than DeepSpeed."""
    name = Path(path).name
    texts = (text for _, text in around.texts(str(Path(path).absolute().parent)) if name in text)
    launches = [line for text in texts for line in _lines(text) if name in line and "accelerate launch" in line]
    options = [_PROGRAM.split(line.partition("accelerate launch")[2], maxsplit=1)[0] for line in launches]
    return bool(options) and all(map(_WITHOUT_DEEPSPEED.search, options))


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; one that a backslash continues is whole."""
    yield from _CONTINUED.sub(" ", text).split("\n")
