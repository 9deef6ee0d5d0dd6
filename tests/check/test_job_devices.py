"""JOB008: the GPU that each process of torchrun takes; JOB001: the processes that several tasks of a node start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
PROGRAM = """import argparse
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", default=0, type=int)
options = parser.parse_args()
SETUP
dist.init_process_group("nccl")
net = torch.nn.Linear(2, 2).to(device)
net(1).backward()
"""
DEVICE = 'device = torch.device("cuda", options.local_rank)'
START = "torchrun --nproc_per_node=4 finetune.py"


def levels(run: Run, tmp_path: Path, setup: str, start: str, program: str = PROGRAM) -> list[str]:
    (tmp_path / "finetune.py").write_text(program.replace("SETUP", setup))
    return [one.level for one in run("start.sh", f"#!/bin/bash\n{start}\n", "JOB008")]


@pytest.mark.parametrize(
    ("setup", "start", "level"),
    [
        (DEVICE, START, "error"),
        (DEVICE, "python -m torch.distributed.run --nproc_per_node 2 finetune.py", "error"),
        (DEVICE, START.replace("=4", "=gpu"), "warning"),
        (DEVICE, f"N=${{1:-4}}\n{START.replace('4', '$N')} --lr 1", "warning"),
        ('device = f"cuda:{options.local_rank}"', START, "error"),
        ("print(options)\ntorch.cuda.set_device(options.local_rank)", START, "error"),
        ("gpu = options.local_rank\ntorch.cuda.set_device(gpu)", START, "error"),
        ('gpu = options.local_rank\ndevice = f"cuda:{gpu}"', START, "error"),
        ("def setup():\n    gpu = options.local_rank\n    torch.cuda.set_device(gpu)\nsetup()", START, "error"),
    ],
)
def test_an_option_that_torchrun_does_not_pass(run: Run, tmp_path: Path, setup: str, start: str, level: str) -> None:
    assert levels(run, tmp_path, setup, start) == [level]


@pytest.mark.parametrize(
    ("setup", "start"),
    [
        (DEVICE, START.replace("=4", "=1")),
        (DEVICE, "torchrun finetune.py"),
        (DEVICE, "python -m torch.distributed.launch --nproc_per_node=4 finetune.py"),
        (DEVICE, "deepspeed --num_gpus 4 finetune.py"),
        (f"options.local_rank = dist.get_node_local_rank()\n{DEVICE}", START),
        (f'import os\noptions.local_rank = int(os.environ["LOCAL_RANK"])\n{DEVICE}', START),
        (f"from setup import prepare\nprepare(options)\n{DEVICE}", START),
        ("device = torch.device('cuda', dist.get_rank())", START),
        ('log = f"rank {options.local_rank}"', START),
        ("gpu = options.local_rank\ngpu = dist.get_rank() % 8\ntorch.cuda.set_device(gpu)", START),
        ("gpu = options.local_rank\nfor gpu in range(8):\n    torch.cuda.set_device(gpu)", START),
        ("gpu = options.local_rank\ndef f(gpu):\n    torch.cuda.set_device(gpu)\nf(dist.get_rank())", START),
        ("gpu = options.local_rank\nprint(gpu)", START),
    ],
)
def test_a_local_rank_from_elsewhere(run: Run, tmp_path: Path, setup: str, start: str) -> None:
    assert levels(run, tmp_path, setup, start) == []


def test_no_default_at_all(run: Run, tmp_path: Path) -> None:
    assert levels(run, tmp_path, DEVICE, START, PROGRAM.replace("default=0", "required=True")) == []


DESCRIBED = """# Start it so:
#   torchrun --nnodes=4 --nproc-per-node=8 \\
#     --rdzv_backend=c10d pretrain.py
import os
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
torch.nn.Linear(2, 2).cuda()(1).backward()
"""


def test_a_script_that_says_how_it_is_started(run: Run) -> None:
    (finding,) = run("pretrain.py", DESCRIBED, "JOB008")
    assert (finding.level, finding.span.line) == ("warning", 8)
    assert "the rank among 32" in finding.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--nnodes=4", "--nnodes=1"),
        ("--nnodes=4", "--standalone"),
        ("pretrain.py", "finetune.py"),
        ("dist.get_rank()", "dist.get_rank() % torch.cuda.device_count()"),
        ("dist.get_rank()", 'int(os.environ["LOCAL_RANK"])'),
    ],
)
def test_a_script_that_is_right_where_it_is_started(run: Run, old: str, new: str) -> None:
    assert run("pretrain.py", DESCRIBED.replace(old, new), "JOB008") == []


SWEEP = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH {gpus}
{lines}
"""
EACH = "srun {options}torchrun --standalone --nproc_per_node={each} rank.py"


@pytest.mark.parametrize("each", ["$SLURM_GPUS_ON_NODE", '"${SLURM_GPUS_ON_NODE}"', "gpu", "auto", "4"])
@pytest.mark.parametrize("gpus", ["--gres=gpu:4", "--gpus-per-node=h100:4"])
def test_each_task_starts_a_process_for_every_gpu(run: Run, each: str, gpus: str) -> None:
    text = SWEEP.format(gpus=gpus, lines=EACH.format(each=each, options=""))
    (finding,) = run("sweep.sbatch", text, "JOB001")
    assert (finding.level, finding.span.line) == ("error", 3)
    assert "4 tasks per node each start a torchrun with 4 processes" in finding.message


@pytest.mark.parametrize(
    ("gpus", "lines"),
    [
        ("--gpus-per-task=1", EACH.format(each="gpu", options="")),  # each task has its own GPU
        ("--gres=gpu:4", EACH.format(each="gpu", options="--gpus-per-task=1 ")),
        ("--gres=gpu:4", EACH.format(each="gpu", options="--gpu-bind=single:1 ")),
        ("--gres=gpu:4", EACH.format(each="gpu", options="--ntasks-per-node=1 ")),
        ("--gres=gpu:4", EACH.format(each="$SLURM_GPUS_ON_NODE", options="-n 1 ")),
        ("--gres=gpu:4", EACH.format(each="$PROCESSES", options="")),
        ("--partition=a100", EACH.format(each="gpu", options="")),
        ("--gres=gpu:4", "srun bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID torchrun --nproc_per_node=gpu rank.py'"),
        ("--gres=gpu:4", EACH.format(each="1", options="")),
    ],
)
def test_each_task_has_gpus_of_its_own(run: Run, gpus: str, lines: str) -> None:
    assert [f for f in run("sweep.sbatch", SWEEP.format(gpus=gpus, lines=lines), "JOB001") if f.level != "info"] == []
