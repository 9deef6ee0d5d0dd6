"""What set HH showed: noisy and false findings, each beside what must still be found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
num_machines: {machines}
num_processes: {processes}
rdzv_backend: static
main_process_port: {port}
"""


@pytest.mark.parametrize(
    ("machines", "processes", "port", "expected"),
    [
        (1, 1, 0, []),
        (1, 8, 0, []),  # any free port
        (2, 16, 0, ["warning JOB009 6"]),
        (1, 8, 80, ["warning JOB009 6"]),
    ],
)
def test_accelerate_looks_for_a_free_port(
    run: Run, machines: int, processes: int, port: int, expected: list[str]
) -> None:
    text = ACCELERATE.format(kind="MULTI_GPU", machines=machines, processes=processes, port=port)
    assert shown([f for f in run("accelerate.yaml", text, "JOB009") if "port" in f.message]) == expected


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("#SBATCH -n_tasks_per_node 4", "write --ntasks-per-node"),
        ("#SBATCH -ntasks-per-node=4", "write --ntasks-per-node=4"),
        ("#SBATCH -n 4 tasks", "write # before a comment"),
    ],
)
def test_a_long_option_with_one_dash_is_the_mistake(run: Run, line: str, fix: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n{line}\n#SBATCH --gres=gpu:4\nsrun python train.py\n", "SLU006")
    assert (finding.level, finding.fix) == ("error", fix)


SCRIPT = "#!/bin/bash\n#SBATCH -c $2\n#SBATCH --gres=gpu:1\n{comment}\npython train.py\n"


@pytest.mark.parametrize(
    ("comment", "readme", "expected"),
    [
        ("", "", ["warning SLU006 2"]),
        ("# srun -c 16 --gres=gpu:2 bash job.sh 16", "", ["info SLU006 2"]),
        ("", "Start it with `srun -c 16 bash scripts/job.sh 16`.", ["info SLU006 2"]),
        ("", "Start it with `srun -c 16 bash job.sh 16`, or with `sbatch job.sh`.", ["warning SLU006 2"]),
        ("# bash job.sh", "", ["warning SLU006 2"]),
    ],
)
def test_a_script_that_srun_starts_has_no_directives(
    tmp_path: Path, comment: str, readme: str, expected: list[str]
) -> None:
    (tmp_path / "README.md").write_text(readme)
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT.format(comment=comment))
    assert shown([f for f in check([str(script)]).findings if f.code == "SLU006"]) == expected
