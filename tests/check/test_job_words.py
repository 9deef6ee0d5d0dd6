"""Words of launch commands that srun, Python and torchrun refuse, and their look-alikes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_sbatch_judge import CONFIGURATION

from trainwright.check.engine import Selection, check


def levels(tmp_path: Path, line: str, code: str) -> list[str]:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\n{line}\n")
    return [one.level for one in check([str(script)], Selection(select=(code,))).findings]


NO_OPTIONS = ["--ntask-per-node=1", "--cpu-binding=none", "--unbufferd", "--nodlist=a", "--cpus-per-tasks=2", "--lable"]
OPTIONS = [
    "--ntasks-per-node=1", "--cpu-bind=none", "--kill-on-bad-exit=1", "--gpus-per-nod=1", "--label", "--unbuffered",
    "--mpi=pmix", "--container-image=a", "--container-mount=a:b", "--auto-resume=1", "--gpu-bin=none", "--overlap",
    "--no-container-entrypoint", "-l", "-N2", "--het-group=0",
]  # fmt: skip


@pytest.mark.parametrize("option", NO_OPTIONS)
def test_options_that_srun_refuses(option: str, tmp_path: Path) -> None:
    assert levels(tmp_path, f"srun {option} hostname", "JOB013") == ["error"]
    if shutil.which("srun") is not None:
        (tmp_path / "slurm.conf").write_text(CONFIGURATION)
        environment = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": "/usr/bin:/bin"}
        said = subprocess.run(["srun", option, "true"], env=environment, capture_output=True, text=True, check=False)
        assert "unrecognized option" in said.stderr


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_srun_and_of_plugins(option: str, tmp_path: Path) -> None:
    assert levels(tmp_path, f"srun {option} python train.py --ntask-per-node=1", "JOB013") == []


MODULES = [
    "python -m train.py", "python3 -u -m scripts/train.py --lr 1", "srun torchrun --nproc_per_node=8 -m train.py",
    "python -W ignore -m train.py", "torchrun --nproc_per_node 8 --module src/train.py",
]  # fmt: skip
NO_MODULES = [
    "python -m train", "python train.py -m a.py", "python -m torch.distributed.run train.py", "torchrun train.py",
    "python -m pytest tests/test_a.py", "python -m $MODULE.py", "torchrun -m train a.py", "python -u train.py",
]  # fmt: skip


@pytest.mark.parametrize("line", MODULES)
def test_a_file_is_no_module(line: str, tmp_path: Path) -> None:
    assert levels(tmp_path, line, "JOB013") == ["error"]


@pytest.mark.parametrize("line", NO_MODULES)
def test_modules_and_files(line: str, tmp_path: Path) -> None:
    assert levels(tmp_path, line, "JOB013") == []


def test_python_refuses_a_file_as_module(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = [sys.executable, "-m", "train.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode
    assert "Error while finding module" in said.stderr


BACKENDS = {
    "c10": ["error"], "c10b": ["error"], "ectd": ["error"], "statc": ["error"], "zookeeper": ["info"], "c10d": [],
    "etcd": [], "etcd-v2": [], "static": [], "$BACKEND": [], "C10D": [],
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_rendezvous_backends(backend: str, tmp_path: Path) -> None:
    line = f"srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend={backend} --rdzv_endpoint=a:29500 train.py"
    assert levels(tmp_path, line, "JOB013") == BACKENDS[backend]


PORTS = {
    "$SLURM_JOB_ID": ["warning"], "${SLURM_JOBID}": ["warning"], "$((10000 + SLURM_JOB_ID % 50000))": [],
    "$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))": [], "29500": [], "1${SLURM_JOB_ID: -4}": [],
    "$(($SLURM_JOB_ID % 16384 + 49152))": [], "$PORT": [],
}  # fmt: skip


@pytest.mark.parametrize("port", PORTS)
def test_the_number_of_a_job_is_no_port(port: str, tmp_path: Path) -> None:
    line = f"export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\nexport MASTER_PORT={port}\n"
    assert levels(tmp_path, line + "srun python train.py", "JOB009") == PORTS[port]


ENDPOINT = "--rdzv_backend=c10d --rdzv_endpoint=$H:29513"


@pytest.mark.parametrize(
    "lines",
    [
        f"ARGS='--nnodes=$SLURM_NNODES {ENDPOINT}'\nsrun torchrun $ARGS train.py",
        f"srun torchrun --nnodes=2 '--node_rank=$SLURM_NODEID' {ENDPOINT} train.py",
        "srun torchrun --nnodes=2 --node_rank=\\$SLURM_NODEID --master_addr=$H train.py",
        "srun accelerate launch --num_machines 2 --machine_rank '$SLURM_PROCID' --main_process_ip $H train.py",
    ],
)
def test_variables_that_single_quotes_keep(lines: str, tmp_path: Path) -> None:
    assert levels(tmp_path, f"H=$(hostname)\n{lines}", "JOB013") == ["error"]


@pytest.mark.parametrize(
    "lines",
    [
        f'ARGS="--nnodes=$SLURM_NNODES {ENDPOINT}"\nsrun torchrun $ARGS train.py',
        f"srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID {ENDPOINT} train.py'",
        f'srun bash -c "torchrun --nnodes=2 --node_rank=\\$SLURM_NODEID {ENDPOINT} train.py"',
        f"ARGS='--nnodes=$SLURM_NNODES {ENDPOINT}'\nsrun bash -c \"torchrun $ARGS train.py\"",
        f"CMD='torchrun --nnodes=$SLURM_NNODES {ENDPOINT} train.py'\neval $CMD",
        f"ARGS='--nnodes=$SLURM_NNODES {ENDPOINT}'\neval torchrun $ARGS train.py",
        "ssh n1 torchrun --nnodes=2 --node_rank='$RANK' --master_addr=$H train.py",
        "ssh n1 'torchrun --nnodes=2 --node_rank=$RANK --master_addr=$H train.py'",
        "cat > run.sh <<EOF\nsrun torchrun --nnodes=\\$SLURM_NNODES train.py\nEOF",
        "echo 'srun torchrun --nnodes=$SLURM_NNODES train.py' > run.sh",
        "sbatch --wrap='torchrun --nnodes=$SLURM_NNODES --standalone train.py'",
        "torchrun --standalone train.py --name '$NAME' --nnodes='$N'",
        "torchrun --standalone --nproc_per_node=${N:-8} train.py",
        "docker run img bash -lc 'torchrun --nnodes=$NNODES --node_rank=$RANK --master_addr=$H train.py'",
        "tmux send-keys 'torchrun --nnodes=$N --master_addr=$H train.py' C-m",
        "su - me -c 'torchrun --nnodes=$N --master_addr=$H train.py'",
    ],
)
def test_variables_that_a_shell_expands(lines: str, tmp_path: Path) -> None:
    assert levels(tmp_path, f"H=$(hostname)\n{lines}", "JOB013") == []
