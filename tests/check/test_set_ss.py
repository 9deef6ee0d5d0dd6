"""What set SS, drawn at random, showed: a comment about a partition, and a command between quotes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("limit hrs:min:sec (1 day max for short)", []),
        ("up to 1 day on this partition", []),
        ("the default is 1 day", []),
        ("1 day", ["info SLU006 2"]),
        ("Time limit: 1 day", ["info SLU006 2"]),
    ],
)
def test_what_a_partition_allows_is_no_time_of_the_job(run: Run, comment: str, expected: list[str]) -> None:
    text = f"#!/bin/bash\n#SBATCH --time=01:00:00   # {comment}\nsrun python train.py\n"
    assert shown(run("a.sbatch", text, "SLU006")) == expected


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("SCRATCH = 'mktemp -d'", "write SCRATCH=$(mktemp -d) without blanks"),
        ('HOST = "hostname"', "write HOST=$(hostname) without blanks"),
        ("NAME = 'llama 8b'", "write name=value without blanks"),
        ("NAME = datefile", "write name=value without blanks"),
    ],
)
def test_a_command_between_quotes_is_to_be_run(run: Run, line: str, fix: str) -> None:
    (finding,) = run("a.sbatch", f"#!/bin/sh\n#SBATCH --mem=1G\n{line}\nsrun python train.py\n", "SHL001")
    assert finding.fix == fix
