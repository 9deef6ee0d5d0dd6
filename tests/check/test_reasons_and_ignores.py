"""Mistakes of `check` itself that a first user found: time that grows with the square of a line, ignore comments above
commands of several lines, reasons that belong to another mistake."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def script(value: str) -> str:
    return f"#!/bin/bash\n#SBATCH --nodes=2\nexport A={value}\nsrun torchrun --nproc_per_node=8 train.py\n"


def cpu_seconds(path: Path, text: str) -> float:
    path.write_text(text)
    start = time.process_time()
    check([str(path)])
    return time.process_time() - start


@pytest.mark.parametrize(
    "unit",
    ["\\", "${A}}", ">", "1\nA=1\nset -a\n", "{ ", "'\"$(\\\"\\'", "1\ncat <<E <<-'F' $(\n\\\"`"],
    ids=["backslashes", "braces", "redirections", "set -a", "blocks", "quotes", "here-documents"],
)
def test_the_time_grows_with_the_length_of_a_shell_file(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "job.sbatch"
    cpu_seconds(path, script("1"))  # reads the catalog
    size = 16_000 if len(unit) == 1 else 8_000
    small, large = (cpu_seconds(path, script(unit * (length // len(unit)))) for length in (size, 4 * size))
    assert large < max(8 * small, 0.2)


def test_backslashes_before_many_substitutions_end(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path / "job.sbatch", script("\\" * 50_000 + "$(" * 5_000)) < 5
