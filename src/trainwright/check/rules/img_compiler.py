"""IMG: nvcc in images of CUDA that hold no compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_stages import Instruction, Stage

_NO_COMPILER = re.compile(r"(\S+/)?nvidia/cuda:\S*?(runtime|base)\b|(docker\.io/)?pytorch/pytorch:\S+-runtime\b")
_RUNS_NVCC = re.compile(r"(^|&&)\s*nvcc\s")
_UNSURE = re.compile(r"[;|]|\bif\b")  # what of the instruction runs, and whether its failure ends the build
# What may bring a compiler: packages, copies, scripts and lists that are not read here.
_BRINGS_ONE = re.compile(
    r"nvcc|cuda[-_]?toolkit|cuda-(compiler|minimal|command|\d)|cuda_\d\S*\.run|\binstall\b[^;&|]{0,2000}\bcuda\b|/usr/local(/cuda|\s)"
    r"|\.sh\b|(conda|mamba)\s+(env|create|install)|\bxargs\b|packages?\.txt|\s/\s"
)
WHY = "the images named base and runtime hold CUDA's libraries alone; the shell ends with status 127."


def missing_compiler(stage: Stage) -> Iterator[Problem]:
    """The first instruction of a stage that runs nvcc where nothing before it may have brought it."""
    before = stage.before.inherited if stage.before is not None else []
    if not _NO_COMPILER.match(stage.base) or any(map(_may_bring_one, before)):
        return
    for one in stage.parts:
        use = _RUNS_NVCC.search(one.text) if one.keyword == "RUN" else None
        if use is not None and not _UNSURE.search(one.text) and not _BRINGS_ONE.search(one.text[: use.start()]):
            what = f"{stage.base} has no nvcc: the build stops here"
            fix = "start this stage from the devel image of the same version"
            yield problem(one.span, what, fix, level="error", why=WHY)
            return
        if _may_bring_one(one):
            return


def _may_bring_one(one: Instruction) -> bool:
    return one.keyword in ("RUN", "COPY", "ADD") and _BRINGS_ONE.search(f"{one.text} ") is not None
