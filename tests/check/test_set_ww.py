"""What was wrong, or of no effect, on files that nobody chose (set WW): each with the right sibling that stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
HEAD = "#!/bin/bash\n"
LATE = "name=a\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:4\nsrun python train.py\n"


@pytest.mark.parametrize(("head", "expected"), [(HEAD, ["warning SHL001 3"]), ("", ["info SHL001 2"])])
def test_late_lines_of_a_file_that_sbatch_refuses_as_a_whole(run: Run, head: str, expected: list[str]) -> None:
    assert shown(run("job.sh", head + LATE, "SHL001")) == expected


@pytest.mark.parametrize(
    ("option", "level"),
    [
        ("--ntasks=1", "info"),
        ("-N 1", "info"),
        ("--nodes 1  # one", "info"),
        ("--ntasks=12", "warning"),
        ("-N 4", "warning"),
    ],
)
def test_a_misspelt_line_that_asks_for_what_is_given_anyway(run: Run, option: str, level: str) -> None:
    text = f"{HEAD}#SBATCH --mem=8G\n#SBACTH {option}\nsrun python train.py\n"
    assert shown(run("job.sh", text, "SLU006")) == [f"{level} SLU006 3"]
