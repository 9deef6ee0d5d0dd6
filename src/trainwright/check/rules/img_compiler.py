"""IMG: nvcc in images of CUDA that hold no compiler: called by name, or by the setup.py of an extension of torch."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator

from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_copied import copied_text
from trainwright.check.rules.img_stages import Instruction, Stage

_NO_COMPILER = re.compile(r"(\S+/)?nvidia/cuda:\S*?(runtime|base)\b|(docker\.io/)?pytorch/pytorch:\S+-runtime\b")
_RUNS_NVCC = re.compile(r"(^|&&)\s*nvcc\s")
_BUILDS = re.compile(
    r"(?:^|&&)\s*(?:(?:python3?\s+-m\s+)?pip3?\s+install\s+(?:-[\w-]+\s+)*(?P<folder>/[\w./-]+|\./?)"
    r"|python3?\s+setup\.py\s+(?:install|develop|build|build_ext|bdist_wheel)\b)(?=\s|$)"
)
_UNSURE = re.compile(r"[;|]|\bif\b")  # what of the instruction runs, and whether its failure ends the build
# What may bring a compiler: packages, copies, scripts and lists that are not read here.
_BRINGS_ONE = re.compile(
    r"nvcc|cuda[-_]?toolkit|cuda-(compiler|minimal|command|\d)|cuda_\d\S*\.run|\binstall\b[^;&|]{0,2000}\bcuda\b|/usr/local(/cuda|\s)"
    r"|\.sh\b|(conda|mamba)\s+(env|create|install)|\bxargs\b|packages?\.txt|\s/\s"
)
# By what a setup.py may leave its kernels out.
_CHOICE = re.compile(r"environ|getenv|CUDA_HOME|is_available|\bexit\b|sys\.argv")
_CHOOSES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension)
WHY = "the images named base and runtime hold CUDA's libraries alone; the shell ends with status 127."
_WHY_BUILD = (
    "the images named base and runtime hold CUDA's libraries alone: torch ends the build with `CUDA_HOME environment "
    "variable is not set` or does not find nvcc."
)


def missing_compiler(stage: Stage, path: str) -> Iterator[Problem]:
    """The first instruction of a stage that runs nvcc where nothing before it may have brought it."""
    before = stage.before.inherited if stage.before is not None else []
    if not _NO_COMPILER.match(stage.base) or any(map(_may_bring_one, before)):
        return
    for number, one in enumerate(stage.parts):
        use = _RUNS_NVCC.search(one.text) if one.keyword == "RUN" else None
        build = _BUILDS.search(one.text) if one.keyword == "RUN" and use is None else None
        if build is not None and _compiles(_setup([*before, *stage.parts[:number]], build["folder"], path)):
            use = build
        if use is not None and not _UNSURE.search(one.text) and not _BRINGS_ONE.search(one.text[: use.start()]):
            what = f"{stage.base} has no nvcc" + (", and setup.py compiles a .cu file" if use is build else "")
            fix = "start this stage from the devel image of the same version"
            why = _WHY_BUILD if use is build else WHY
            yield problem(one.span, f"{what}: the build stops here", fix, level="error", why=why)
            return
        if _may_bring_one(one):
            return


def _may_bring_one(one: Instruction) -> bool:
    if one.keyword == "ENV":
        return "CUDA_HOME" in one.text
    return one.keyword in ("RUN", "COPY", "ADD") and _BRINGS_ONE.search(f"{one.text} ") is not None


def _setup(before: list[Instruction], folder: str | None, path: str) -> str:
    """The setup.py that these instructions copy to a directory of the image."""
    return copied_text(before, posixpath.join(folder or ".", "setup.py"), path)[1]


def _compiles(setup: str) -> bool:
    """Whether a setup.py builds a .cu file whatever its machine has."""
    if "CUDAExtension" not in setup or _CHOICE.search(setup):
        return False
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError):
        return False
    plain = [one for one in body if isinstance(one, ast.Expr | ast.Assign)]
    nodes = [list(ast.walk(one)) for one in plain]
    return any(_of_a_kernel(node) for part in nodes if not any(isinstance(n, _CHOOSES) for n in part) for node in part)


def _of_a_kernel(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "CUDAExtension" and re.search(r"\.cu['\"]", ast.unparse(node)) is not None
