"""What set GG showed: noisy and false findings, each beside what must still be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("#SBATCH --mail-user=$EMAIL", "pass it to sbatch: Slurm expands no variable in these lines"),
        ("#SBATCH --mem=64G", "move it above the first command"),
        (
            "#SBATCH --mem=64G\n#SBATCH --chdir=$HOME/run",
            "move them above the first command, and pass to sbatch what has a variable",
        ),
    ],
)
def test_a_late_directive_with_a_variable_is_not_to_be_moved(run: Run, line: str, fix: str) -> None:
    (finding,) = run("job.sbatch", f"{SBATCH}module purge\n{line}\nsrun python train.py\n", "SHL001")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<actual code that trains the model>", ["info SLU006 1"]),
        ("python train.py", ["warning SLU006 1"]),
        ("python train.py < input.txt > out.txt", ["warning SLU006 1"]),
    ],
)
def test_a_script_whose_commands_are_left_to_the_reader_is_a_part(run: Run, body: str, expected: list[str]) -> None:
    assert shown(run("job.sh", f"##!/bin/bash\n#SBATCH --gres=gpu:1\n\n{body}\n", "SLU006")) == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("mkdir -p /home/ann/project/logs", ["info SHL001 4"]),  # whoever has this path has run it before
        ("mkdir -p logs", ["warning SHL001 4"]),
        ('mkdir -p "$PROJECT/logs"', ["warning SHL001 4"]),
    ],
)
def test_a_log_directory_by_its_full_path_is_of_one_place(run: Run, made: str, expected: list[str]) -> None:
    text = f"{SBATCH}#SBATCH --output=logs/%j.out\n{made}\nsrun python train.py\n"
    assert shown(run("job.sbatch", text, "SHL001")) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("max_train_micro_batch_size_per_gpu", ["info DSP001 2"]),  # of autotuning, and not misspelt
        ("my_train_micro_batch_size_per_gpu", []),
        ("train_micro_batch_size_per_gpus", ["warning DSP001 2"]),
    ],
)
def test_a_longer_key_of_deepspeed_is_another_one(run: Run, key: str, expected: list[str]) -> None:
    text = f'{{\n  "{key}": 8,\n  "train_batch_size": 64,\n  "zero_optimization": {{"stage": 2}}\n}}\n'
    assert shown(run("ds_config.json", text, "DSP001")) == expected


def test_keys_of_autotuning_at_the_top_are_one_finding(run: Run) -> None:
    text = """{
  "train_batch_size": 4,
  "max_train_micro_batch_size_per_gpu": 8,
  "min_train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}
"""
    (finding,) = run("ds_config.json", text, "DSP001")
    assert finding.level == "info"
    assert "autotuning" in finding.message


def test_clipping_of_accelerate_must_agree_with_the_trainer(run: Run) -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  zero_stage: 2\n  gradient_clip: 1\nnum_machines: 1\nnum_processes: 4\n"
    )
    (finding,) = run("accelerate.yaml", text, "CFG006")
    assert finding.level == "info"  # set HH: the Trainer fills it in from max_grad_norm
    assert finding.fix == "did you mean gradient_clipping? The Trainer stops unless it is auto or equals max_grad_norm"
