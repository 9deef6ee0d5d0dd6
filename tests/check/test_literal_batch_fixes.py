"""Fixes of batch scripts that a reader follows to the letter, and warnings that depend on what a script is for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
MADE = "mkdir -p logs logs/$SLURM_JOB_ID"


@pytest.mark.parametrize(
    ("directives", "body", "level"),
    [
        ("", "python Binder.py a $SLURM_ARRAY_TASK_ID 2>&1 | tee -a log.txt", "info"),
        ("", "srun ./solve mesh.inp | tee log", "info"),
        ("", "python score.py data/train.csv | tee log", "info"),
        ("", "python train.py | tee log", "warning"),
        ("", "torchrun main.py | tee log", "warning"),
        ("", "python main.py --epochs 3 | tee log", "warning"),
        ("#SBATCH --job-name=finetune\n", "python main.py | tee log", "warning"),
        ("", "python eval.py --ckpt last.pt | tee log", "info"),
        ("", "python preprocess.py --out /data/train/ | tee log", "info"),
        ("", "python preprocess.py --split train --out=train | tee log", "info"),
        ("", "python count.py --fortune_telling 1 | tee log", "info"),
        ("", "python /data/training/eval.py --pretrained a | tee log", "info"),
        ("", "srun --output=train.log python eval.py | tee log", "info"),
        ("", "python eval.py checkpoints/finetune/last.pt | tee log", "info"),
        ("", "python main.py --mode train | tee log", "warning"),
        ("", "python main.py train | tee log", "warning"),
        ("", "python -m lab.train_model a | tee log", "warning"),
        ("", "python main.py --lr 0.1 | tee log", "warning"),
        ("", "python main.py optimizer.lr=0.1 | tee log", "warning"),
        ("", "python main.py trainer.max_epochs=3 | tee log", "warning"),
        ("", "srun python -u scripts/fine_tune.py | tee log", "warning"),
        ("", "srun ./pretrain | tee log", "warning"),
        ("", "python tuner.py | tee log", "warning"),
        ("#SBATCH --requeue\n", "python simulate.py | tee log", "warning"),
        ("", "sbatch --dependency=afterok:$SLURM_JOB_ID next.sh\npython simulate.py | tee log", "warning"),
        ("", 'python score.py | tee log\necho "exit code: $?"', "info"),
        ("", "python score.py | tee log\nif [ $? -ne 0 ]; then echo failed; fi", "warning"),
        ("", "set -e\npython score.py | tee log\necho done", "info"),
        ("", "set -e\npython score.py | tee log\ncp a b", "warning"),
    ],
)
def test_status_of_tee_counts_where_something_depends_on_it(run: Run, directives: str, body: str, level: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\n{directives}{body}\n", "SLU006")
    assert finding.level == level


def test_a_version_that_is_asked_for_trains_nothing(run: Run) -> None:
    body = "set -e\npython --version | tee log\npython train.py | tee log\necho done"
    (finding,) = run("job.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\n{body}\n", "SLU006")
    assert (finding.level, finding.span.line) == ("warning", 5)


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("python train.py | tee log", "add `set -o pipefail` before it"),
        ('srun bash -c "python train.py | tee log"', "begin the text between the quotes with `set -o pipefail; `"),
        ("srun sh -c 'python train.py | tee log'", "use bash -c, and begin its text between the quotes with"),
    ],
)
def test_pipefail_is_set_in_the_shell_of_the_pipe(run: Run, command: str, fix: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\n{command}\n", "SLU006")
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(
    ("outputs", "fix"),
    [
        (("logs/%A/%a.out",), "write logs/%A_%a.out, and run `mkdir -p logs` before you submit"),
        (
            ("logs/%j/out", "errs/%j.err"),
            "write logs/%j_out and errs/%j.err, and run `mkdir -p logs errs` before you submit",
        ),
        (("logs/%x/%j/out",), "write logs/%x/%j_out, and run `mkdir -p logs/job.sbatch` before you submit"),
    ],
)
def test_logs_of_several_jobs_keep_their_names(run: Run, outputs: tuple[str, ...], fix: str) -> None:
    options = zip(("output", "error"), outputs, strict=False)
    head = "".join(f"#SBATCH --{option}={value}\n" for option, value in options)
    (finding,) = run("job.sbatch", f"#!/bin/bash\n{head}{MADE}\npython train.py\n", "SHL001")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("after", "other"),
    [("mv logs/$SLURM_JOB_ID.out results/", False), ('echo "logs/$SLURM_JOB_ID.out"', True), ("true", True)],
)
def test_a_log_that_the_job_moves_stays_where_it_is(run: Run, after: str, other: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH --output=logs/%j.out\nmkdir -p logs\npython train.py\n{after}\n"
    (finding,) = run("job.sbatch", text, "SHL001")
    assert finding.fix.endswith("or remove the directory from --output") == other


@pytest.mark.parametrize(
    ("directive", "values", "fix"),
    [
        ("--partition=$PART", "PART=gpu", "write --partition=gpu"),
        ("--array=0-$N", "N=3", "write --array=0-3"),
        ("--array=0-$N", "N=$1", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "N=3\nN=4", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "M=3", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "N=${1:-4}", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "M=${1:-4}\nN=$M", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", ": ${N:=4}", "remove it, and pass it: sbatch --array=0-$N …"),
        (
            "--array=0-$N",
            'if [ "$1" = big ]; then\n  N=16\nfi',
            "remove it, and pass it: sbatch --array=0-$N …",
        ),
        ("--array=0-$N", '[ "$1" = big ] && N=16', "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "case $1 in\n  a) N=16 ;;\nesac", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "N=3 python a.py", "remove it, and pass it: sbatch --array=0-$N …"),
        ("--array=0-$N", "export N=3", "write --array=0-3"),
    ],
)
def test_a_value_of_the_script_itself_is_written_out(run: Run, directive: str, values: str, fix: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n#SBATCH {directive}\n{values}\npython t.py\n", "SLU006")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("nodes", "command", "fix"),
    [
        (1, "python t.py --world $SLURM_GPUS", "use $SLURM_GPUS_ON_NODE, or request them with --gpus"),
        (2, "python t.py --world $SLURM_GPUS", "use $((SLURM_NNODES * SLURM_GPUS_ON_NODE))"),
        (2, "torchrun --nproc_per_node=$SLURM_GPUS t.py", "use $SLURM_GPUS_ON_NODE"),
    ],
)
def test_gpus_of_one_node_and_of_all(run: Run, nodes: int, command: str, fix: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --gres=gpu:4\n{command}\n"
    (finding,) = run("job.sbatch", text, "SLU006")
    assert finding.fix == fix


def test_a_colon_behind_the_word_is_removed(run: Run) -> None:
    (finding,) = run("job.sbatch", "#!/bin/bash\n#SBATCH -n 1\n#SBATCH: --mem=4G\npython t.py\n", "SLU006")
    assert finding.fix == "remove `:`"


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("EXP_NAME=tmp_test", "info"),
        ('RUN_NAME="debug-1"', "info"),
        ("EXP_NAME=latest", "warning"),
        ("TRAIN_TEST_SPLIT=test", "warning"),
    ],
)
def test_blocking_launches_of_a_trial_are_a_note(run: Run, name: str, level: str) -> None:
    text = f"{name}\nexport CUDA_LAUNCH_BLOCKING=1\ntorchrun --standalone train.py\n"
    assert [one.level for one in run("run.sh", text, "ENV002")] == [level]


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("torchrun --standalone train.py --run_name debug", "info"),
        ("torchrun --standalone train.py --exp-name=tmp_test", "info"),
        ("torchrun --standalone train.py trainer.experiment_name=debug", "info"),
        ("torchrun --standalone train.py logger.wandb.name=test", "info"),
        ("TAG=test\ntorchrun --standalone train.py", "warning"),
        ("torchrun --standalone train.py --wandb-run-name test", "info"),
        ("RUN_ID=test torchrun --standalone train.py", "info"),
        ("srun --job-name=debug torchrun train.py", "info"),
        ("torchrun --standalone train.py --dataset-name test", "warning"),
        ("torchrun --standalone train.py --name test", "warning"),
        ("torchrun --standalone train.py dataset.name=test", "warning"),
        ("torchrun --standalone train.py --tag test", "warning"),
        ("torchrun --standalone train.py --job-dir test", "warning"),
        ("singularity run test.sif\ntorchrun --standalone train.py", "warning"),
        ("docker run test\ntorchrun --standalone train.py", "warning"),
    ],
)
def test_only_the_name_of_a_run_says_that_it_is_a_trial(run: Run, command: str, level: str) -> None:
    text = f"export CUDA_LAUNCH_BLOCKING=1\n{command}\n"
    assert [one.level for one in run("run.sh", text, "ENV002")] == [level]
