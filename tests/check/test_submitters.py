"""Options of the sbatch command line win over the directives of a script: a size that another file of the repository
gives makes the one in the script a default."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.engine import check

JOB = """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1 --ntasks-per-node=1 --cpus-per-task=4
srun torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
"""
REPORTED = ["warning JOB006 2", "error JOB009 3", "error JOB001 3"]
OPTIONS = "--nodes=4 --gres=gpu:8 --cpus-per-task=64"


def findings(folder: Path, name: str = "", text: str = "") -> list[str]:
    (folder / "job.sbatch").write_text(JOB)
    if name:
        (folder / name).write_text(text)
    return loud(check([str(folder / "job.sbatch")]).findings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("submit.sh", f"#!/bin/bash\nsbatch {OPTIONS} job.sbatch\n"),
        ("submit.sh", "#!/bin/bash\nsbatch \\\n  --nodes=4 \\\n --gres=gpu:8 \\\n -c 64 \\\n  job.sbatch $1\n"),
        ("submit.sh", '#!/bin/bash\nsbatch -N $NODES -G $((NODES * 8)) -c "$CPUS" ./job.sbatch\n'),
        ("submit.sh", f"#!/bin/bash\nJOB=job.sbatch\nsbatch {OPTIONS} $JOB\n"),
        ("README.md", f"Run `sbatch {OPTIONS} job.sbatch`.\n"),
        ("Makefile", f"run:\n\tsbatch {OPTIONS} job.sbatch\n"),
        ("submit.py", "run(['sbatch', '--nodes=4', '--gres=gpu:8', '--cpus-per-task', '64', 'job.sbatch'])\n"),
    ],
)
def test_what_the_submitter_gives_is_not_the_scripts(tmp_path: Path, name: str, text: str) -> None:
    assert findings(tmp_path, name, text) == []
    assert [one.split()[1] for one in shown(check([str(tmp_path / "job.sbatch")]).findings)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", ""),
        ("submit.sh", "#!/bin/bash\nsbatch job.sbatch\n"),
        ("submit.sh", "#!/bin/bash\nsbatch --nodes=1 --gres=gpu:1 --cpus-per-task=4 --time=10:00 job.sbatch\n"),
        ("submit.sh", f"#!/bin/bash\nsbatch {OPTIONS} other.sbatch\nls job.sbatch\n"),
        ("README.md", "Call `sbatch job.sbatch` after `srun --nodes=4 hostname`.\n"),
    ],
)
def test_what_nobody_gives_is_the_scripts(tmp_path: Path, name: str, text: str) -> None:
    assert sorted(findings(tmp_path, name, text)) == sorted(REPORTED)


def test_only_the_size_that_is_given_is_open(tmp_path: Path) -> None:
    text = "#!/bin/bash\nsbatch --cpus-per-task=64 job.sbatch\n"
    assert sorted(findings(tmp_path, "submit.sh", text)) == ["error JOB001 3", "error JOB009 3"]
