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


@pytest.mark.parametrize("option", ["--error=a", "-J a", "--job-name=lost", "--mail-type=END", "--comment=later"])
def test_a_misspelt_line_that_changes_nothing_of_the_job(run: Run, option: str) -> None:
    text = f"{HEAD}#SBATCH --mem=8G\n#SBTACH {option}\nsrun python train.py\n"
    assert shown(run("job.sh", text, "SLU006")) == ["info SLU006 3"]


@pytest.mark.parametrize(
    ("end", "start", "fix"),
    [
        ("=1", "--master_port=10001", "end line 3 with a blank and a backslash"),
        ("=1 ", "--master_port=10001", "end line 3 with a backslash"),
        ("=1", "    --master_port=10001", "end line 3 with a backslash"),
    ],
)
def test_a_backslash_does_not_join_two_words(run: Run, end: str, start: str, fix: str) -> None:
    text = f"{HEAD}\npython -m torch.distributed.run --nproc_per_node{end}\n{start} train.py\n"
    (finding,) = run("run.sh", text, "SHL001")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("below", "level"),
    [
        ("./convert.py ${file} ${channel} ${shift}", "info"),
        ("file=a\n./train.py $file", "warning"),
        ("# ./convert.py ${file} ${channel} ${shift}", "warning"),
    ],
)
def test_a_script_whose_variables_nobody_sets_is_filled_in(run: Run, below: str, level: str) -> None:
    text = f"{HEAD}#SBATCH -D ${{rundir}}\nsrun python train.py\n{below}\n"
    assert shown(run("job.sh", text, "SLU006")) == [f"{level} SLU006 2"]
