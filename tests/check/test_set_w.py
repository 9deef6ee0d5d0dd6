"""What the judged files of set W and a first-time user's files showed: false alarms, and mistakes that were missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding


@pytest.fixture
def run(tmp_path: Path):  # type: ignore[no-untyped-def]
    def findings(name: str, text: str, *codes: str) -> list[Finding]:
        path = tmp_path / name
        path.write_text(text)
        return check([str(path)], Selection(select=codes)).findings

    return findings


def shown(findings: list[Finding]) -> list[str]:
    return [f"{f.level} {f.code} {f.span.line}" for f in findings]


def sbatch(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, ""])


ACCELERATE = "accelerate launch --main_process_ip $A --main_process_port {port} --num_processes {n} {more} train.py"


def test_job009_knows_that_accelerate_passes_the_endpoint(run) -> None:  # type: ignore[no-untyped-def]
    more = "--num_machines 2 --rdzv_backend c10d"
    launch = "srun " + ACCELERATE.format(port=29900, n=4, more=more)
    assert shown(run("a.sbatch", sbatch("#SBATCH --nodes=2", "#SBATCH --exclusive", launch), "JOB009")) == []
    one = ACCELERATE.format(port=12017, n=1, more="")
    assert shown(run("b.sbatch", sbatch("#SBATCH --nodes=1", "#SBATCH --gres=gpu:1", one), "JOB009")) == []
    free = ACCELERATE.format(port=0, n=2, more="--num_machines=1")
    assert shown(run("c.sh", sbatch(free), "JOB009")) == []
    shared = ACCELERATE.format(port=12017, n=2, more="")
    assert shown(run("d.sbatch", sbatch("#SBATCH --nodes=1", "#SBATCH --gres=gpu:2", shared), "JOB009")) == [
        "warning JOB009 4"
    ]


def test_job011_leaves_the_scratch_of_other_sites_alone(run) -> None:  # type: ignore[no-untyped-def]
    launch = "srun torchrun --nnodes=2 --nproc_per_node=8 train.py --output_dir /scratch/someone/out"
    assert shown(run("a.sbatch", sbatch("#SBATCH --nodes=2", launch), "JOB011")) == ["warning JOB011 3"]
    for sign in ("export NCCL_SOCKET_IFNAME=ib0", "export NCCL_NET=IB", "#SBATCH --account=proj", "module load cuda"):
        assert shown(run("b.sbatch", sbatch("#SBATCH --nodes=2", sign, launch), "JOB011")) == []


def test_env001_knows_cards_without_nvlink(run) -> None:  # type: ignore[no-untyped-def]
    lines = ["#SBATCH --gres=gpu:8", "export NCCL_P2P_DISABLE=1", "torchrun --nproc_per_node=8 train.py"]
    assert shown(run("a.sbatch", sbatch("#SBATCH --partition=gpu", *lines), "ENV001")) == ["warning ENV001 4"]
    assert shown(run("b.sbatch", sbatch("#SBATCH --partition=RTX4090", *lines), "ENV001")) == []


def test_job005_leaves_the_warmup_of_torchtitan_alone(run) -> None:  # type: ignore[no-untyped-def]
    titan = "[training]\nsteps = 10\n[optimizer]\nlr = 1e-3\n[lr_scheduler]\nwarmup_steps = 200\n[parallelism]\n"
    assert shown(run("a.toml", titan, "JOB005")) == []


def test_what_was_noise_is_a_note_or_silent(run) -> None:  # type: ignore[no-untyped-def]
    launch = "torchrun --nproc_per_node=8 train.py"
    text = sbatch("export NCCL_BLOCKING_WAIT=1", launch)
    assert shown(run("a.sh", text, "ENV002")) == ["info ENV002 2"]
    off = sbatch("export NCCL_IB_DISABLE=1", "export NCCL_NET_GDR_LEVEL=0", launch)
    assert shown(run("b.sh", off, "ENV001")) == []
    assert shown(run("c.sh", off.replace("IB_DISABLE=1", "IB_DISABLE=0"), "ENV001")) == ["error ENV001 3"]
    aside = sbatch("#SBATCH --nodes=1", launch, "#SBATCH --nodelist=node1")
    assert shown(run("d.sbatch", aside, "SHL001")) == ["info SHL001 4"]
    late = sbatch("#SBATCH --nodes=1", "cd /fsx", "#SBATCH --nodelist=node1", launch)
    assert shown(run("e.sbatch", late, "SHL001")) == ["warning SHL001 4"]
    image = (
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nARG TORCH_VERSION==2.3.0\nRUN pip install torch${TORCH_VERSION}\n"
    )
    assert shown(run("Dockerfile", image, "SHL001")) == []
