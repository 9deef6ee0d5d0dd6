"""How many tasks srun starts, recorded once from Slurm 22.05.8 on four nodes (no Slurm runs here): directives, options
of srun, tasks (None: `copies` leaves it open, with Slurm's answer beside it), and whether each of the job's nodes got
one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.launches.steps import copies, one_per_node
from trainwright.check.model import File
from trainwright.check.readers.recognise import read_file

ANSWERS = [
    ("--nodes=2", "", 2, True),
    ("--nodes=2 --ntasks=2", "", 2, True),
    ("--nodes=2 --ntasks=4", "", 4, False),
    ("--nodes=2 --ntasks-per-node=2", "", 4, False),
    ("--nodes=2 --tasks-per-node=4", "", 8, False),
    ("--nodes=2 --tasks=4", "", None, False),  # 8: the beginning of --tasks-per-node
    ("--nodes=2 --ntasks=2 --ntasks-per-node=2", "", 2, True),
    ("--nodes=2 --ntasks=16 --ntasks-per-node=8", "", 16, False),
    ("--nodes=4 --ntasks-per-node=8", "-N 4", 32, False),
    ("--nodes=4 --ntasks-per-node=8", "--ntasks=4", 4, True),
    ("--nodes=4 --ntasks-per-node=8", "--ntasks=4 --ntasks-per-node=1", 4, True),
    ("--nodes=4", "--nodes=4 --ntasks=2", 2, False),
    ("--nodes=4 --exclusive", "-n 8", 8, False),
    ("--nodes=4 --exclusive", "--nodes=2", 2, False),
    ("--nodes=4 --exclusive", "--nodes=2 --ntasks-per-node=2", 4, False),  # two on each of two nodes
    ("--nodes=4 --exclusive", "--ntasks-per-node=2", 8, False),
    ("--nodes=2 --ntasks-per-node=1", "--jobid=$SLURM_JOB_ID", 2, True),
    ("--nodes=2 --ntasks-per-node=1", "--jobid=1234", None, False),  # of another job: not asked
    ("--nodes=2 --ntasks-per-node=1", "-w n1 -n1", 1, False),
    ("--nodes=2 --ntasks-per-node=1", "-x n1 -n1", 1, False),
    ("--nodes=2 --exclusive", "-w n1 -N1", 1, False),
    ("--nodes=2 --exclusive", "-r 1 -N1", 1, False),
    ("--nodes=2", "-w n1", None, False),
    ("--nodes=2 --ntasks=1", "", 1, False),
    ("--nodes=2 --ntasks=1 --exclusive", "--ntasks=2", 2, False),  # the job got one node
    # srun has SLURM_NTASKS of the directives, which wins over its own --nodes and --ntasks-per-node.
    ("--nodes=4 --ntasks-per-node=8", "--ntasks-per-node=1", None, False),  # 32
    ("--nodes=4 --ntasks=32", "--ntasks-per-node=1", None, False),  # 32
    ("--nodes=4 --ntasks=4", "--ntasks-per-node=8", None, False),  # 4
    ("--nodes=4 --ntasks-per-node=1 --exclusive", "--nodes=2", None, False),  # 4, two on each
    ("--nodes=2 --ntasks=1", "--ntasks-per-node=1", None, False),  # 1
    ("--nodes=2 --gpus-per-node=8 --ntasks-per-gpu=1", "", None, False),  # 16
    ("--nodes=2 --gpus-per-task=1 --ntasks=8", "", 8, False),
    ("--nodes=2-4", "", None, False),
    ("--ntasks=4 --ntasks-per-node=1", "", 4, False),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "options", "tasks", "on_each"), ANSWERS)
def test_tasks_are_counted_as_slurm_starts_them(
    directives: str, options: str, tasks: int | None, on_each: bool
) -> None:
    file = read_file("a.sbatch", f"#!/bin/bash\n#SBATCH {directives}\nsrun {options} torchrun train.py\n")
    assert isinstance(file, File)
    started, nodes = copies(file.jobs[0]), one_per_node(file.jobs[0])
    assert (started.value if started is not None else None) == tasks
    assert (nodes is not None) == on_each


@pytest.mark.parametrize(("tasks", "count"), [(2, 0), (1, 1)])
def test_gpus_are_idle_only_where_no_task_uses_them(tasks: int, count: int, tmp_path: Path) -> None:
    script = tmp_path / "a.sbatch"
    head = f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node={tasks} --gpus-per-node=8\n"
    met = "--rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
    script.write_text(f"{head}srun torchrun --nnodes={2 * tasks} --nproc_per_node=4 {met} train.py\n")
    idle = [f for f in check([str(script)], Selection(select=("JOB001",))).findings if "are used of" in f.message]
    assert len(idle) == count
