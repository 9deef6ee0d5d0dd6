"""What set S showed: one noisy finding, and certain mistakes that were missed, each beside its correct form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"


def test_the_first_nodes_own_copy_may_name_itself(run: Run) -> None:
    text = "torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=127.0.0.1 --master_port=29500 train.py\n"
    assert shown(run("a.sh", text, "JOB009")) == ["info JOB009 1"]
    on_all = (
        SBATCH
        + "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 t.py\n"
    )
    assert shown(run("a.sbatch", on_all, "JOB009")) == ["warning JOB009 4"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('hostfile= "hosts"', ["warning SHL001 2"]),
        ("export EPOCHS= 10", ["warning SHL001 2"]),
        ("CUDA_VISIBLE_DEVICES= python train.py", []),
        ("IFS= read -r line", []),
        ('hostfile="hosts"', []),
    ],
)
def test_a_blank_after_equals(run: Run, line: str, expected: list[str]) -> None:
    assert shown(run("a.sh", f"#!/bin/bash\n{line}\ntorchrun train.py\n", "SHL001")) == expected


def test_sbatch_wants_an_interpreter_and_a_unit(run: Run) -> None:
    bare = SBATCH.removeprefix("#!/bin/bash\n") + "srun python train.py\n"
    assert shown(run("a.sbatch", bare, "SLU006")) == ["error SLU006 1"]
    assert shown(run("a.sbatch", SBATCH + "srun python train.py\n", "SLU006")) == []
    small = SBATCH + "#SBATCH --mem-per-cpu=32\n#SBATCH --mem=0\nsrun python train.py\n"
    assert shown(run("a.sbatch", small, "SLU006")) == ["info SLU006 4", "error SLU006 5"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("accelerate launch --num_processes 2 python3 train.py", 1),
        ("torchrun --nproc_per_node=2 python train.py", 1),
        ("torchrun --nproc_per_node=2 --no-python python train.py", 0),
        ("torchrun --nproc_per_node=2 train.py", 0),
        ("python -m deepspeed train.py", 1),
        ("python -m deepspeed.launcher.runner train.py", 0),
    ],
)
def test_the_program_of_a_launcher(run: Run, command: str, expected: int) -> None:
    assert len(run("a.sh", f"#!/bin/bash\n{command}\n", "JOB013")) == expected


def test_accelerate_does_not_read_deepspeeds_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}')
    (tmp_path / "acc.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_processes: 8\nnum_machines: 1\n")
    assert shown(run("a.sh", "accelerate launch --config_file ds.json train.py\n", "JOB016")) == ["error JOB016 1"]
    assert shown(run("b.sh", "accelerate launch --config_file acc.yaml train.py\n", "JOB016")) == []
    beside = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py\n"
    assert shown(run("c.sh", beside, "JOB016")) == []


VOLUMES = """apiVersion: v1
kind: PersistentVolume
metadata: {name: fsx}
spec:
  capacity: {storage: 38400Gi}
  csi: {driver: fsx.csi.aws.com, volumeHandle: fs-0}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: fsx}
spec:
  volumeName: fsx
  resources: {requests: {storage: SIZE}}
"""


@pytest.mark.parametrize(("size", "expected"), [("76800Gi", ["error K8S006 13"]), ("38400Gi", []), ("1Ti", [])])
def test_a_claim_is_no_larger_than_its_volume(tmp_path: Path, size: str, expected: list[str]) -> None:
    (tmp_path / "fsx.yaml").write_text(VOLUMES.replace("SIZE", size))
    assert shown(check([str(tmp_path)], Selection(select=("K8S006",))).findings) == expected
