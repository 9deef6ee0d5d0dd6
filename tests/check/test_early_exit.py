"""What stands behind the end of a script does not run: an `exit` or an `exec` that every run reaches. Where one branch
starts a training and ends the script, a later start is the other choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.engine import check

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n"
MISTAKE = "NAME = value\n#SBATCH --nodes=4\npython train.py \n  --lr 3\n"
POLYGLOT = """#!/bin/bash
#SBATCH --ntasks=4
#=
srun julia "$0" "$@"
exit
=#
steps = 5
"""


@pytest.mark.parametrize("end", ["exit", "exit 0", "exit $?", "exec python train.py", "python a.py; exit"])
def test_what_stands_behind_the_end_is_not_judged(run, end: str) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.sbatch", f"{HEAD}{end}\n{MISTAKE}", "SHL001")) == []


def test_a_script_of_another_language_behind_the_end(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.sbatch", POLYGLOT, "SHL001")) == []


@pytest.mark.parametrize(
    "line",
    [
        "exec > log.txt 2>&1", "exec 3>&1", "exec {log}>log.txt", "python a.py || exit 1", "python a.py && exit 0",
        "(exit 0)", "exit 0 | cat", "if [ -f a ]; then exit; fi", "stop() { exit 1; }", "stop() (\n  exit 1\n)",
        "case $1 in a) exit ;; esac", "[ -f a ] && exit", "for f in *; do exit; done", "echo exit",
        "exit 0 &",
    ],
)  # fmt: skip
def test_what_does_not_end_the_script_hides_nothing(run, line: str) -> None:  # type: ignore[no-untyped-def]
    assert len(loud(run("a.sbatch", f"{HEAD}{line}\n{MISTAKE}", "SHL001"))) == 3


INNER = """#!/bin/bash
if [ -n "$SLURM_JOB_ID" ]; then
  {}
fi
torchrun --nnodes 1 --nproc_per_node 8 train.py
"""
OUTER = "#!/bin/bash\n#SBATCH -N 4 --ntasks-per-node=1 --gres=gpu:2\nsrun bash run.sh\n"
SEVERAL = "torchrun --nnodes $SLURM_NNODES --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint $M:29500 train.py"


def errors(folder: Path, inside: str) -> int:
    (folder / "job.sbatch").write_text(OUTER)
    (folder / "run.sh").write_text(INNER.format(inside))
    return len([f for f in check([str(folder)]).findings if f.code == "JOB016" and f.level == "error"])


@pytest.mark.parametrize("inside", [f"{SEVERAL}\n  exit", f"{SEVERAL}\n  exit $?", f"exec {SEVERAL}"])
def test_a_branch_that_trains_and_ends_leaves_the_rest_to_the_other_choice(tmp_path: Path, inside: str) -> None:
    assert errors(tmp_path, inside) == 0


@pytest.mark.parametrize("inside", ["echo no job\n  exit 1", "srun nvidia-smi\n  exit 1", "echo usage\n  exit"])
def test_a_branch_that_only_ends_leaves_no_choice(tmp_path: Path, inside: str) -> None:
    assert errors(tmp_path, inside) == 2
