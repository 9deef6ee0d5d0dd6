"""`trainwright recipes new`: a job script becomes a recipe that makes its options again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from resolving import resolved
from trainwright.cli.main import cli
from trainwright.jobs.frameworks import framework_launch

HEAD = """#!/bin/bash
#SBATCH --job-name=gpt3
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
"""
MEGATRON = (
    "--num-layers 36 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --tensor-model-parallel-size 4 "
    "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 288 --train-iters 5000 --lr 6e-05 "
    "--min-lr 6e-06 --lr-decay-style cosine --lr-warmup-iters 100 --clip-grad 1.0 --bf16 --recompute-activations "
    "--data-path /fsx/data/text_document --save-interval 250 --swiglu --init-method-std 0.01"
)


def made(script: str, folder: Path) -> dict[str, object]:
    (folder / "train.sbatch").write_text(HEAD + script + "\n")
    words = ["recipes", "new", "--from", str(folder / "train.sbatch"), "-o", str(folder / "mine.yaml")]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content: dict[str, object] = yaml.safe_load((folder / "mine.yaml").read_text())
    return content


def test_the_recipe_makes_the_options_again(tmp_path: Path) -> None:
    recipe = made(f"srun torchrun --nproc_per_node=8 --nnodes=2 /opt/megatron-lm/pretrain_gpt.py {MEGATRON}", tmp_path)
    assert recipe["model"] == "gpt3-7.5b"
    assert recipe["batch"] == {"sequences": 288, "micro_batch": 1}
    job = resolved({"recipe": str(tmp_path / "mine.yaml")}, 16, "p4de.24xlarge")
    words = " ".join(framework_launch(job, tmp_path, tmp_path).options) + " "
    for option in MEGATRON.split(" --"):
        assert f"--{option.removeprefix('--')} " in words, option


def test_another_program_stays_a_command(tmp_path: Path) -> None:
    recipe = made("srun torchrun --nproc_per_node=8 --nnodes=2 /opt/their/train.py --width 5", tmp_path)
    assert recipe["trainer"] == {"command": ["python", "/opt/their/train.py", "--width", "5"]}


@pytest.mark.parametrize("words", [["list", "--framework", "verl"], ["list", "--model", "esm2"], ["frameworks"]])
def test_lists(words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["recipes", *words], catch_exceptions=False)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) > 2
