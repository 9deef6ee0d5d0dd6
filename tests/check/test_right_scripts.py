"""Right scripts of clusters and launchers that were reported: each test is one cause, with the mistake beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import loud

from trainwright.check.engine import check

TWO_NODES = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:4\n"


@pytest.mark.parametrize(
    "lines",
    [
        "OUT=/tmp/$SLURM_JOB_ID\nsrun python train.py --save_dir $OUT\nsrun cp -r $OUT $HOME\n",
        "trap 'rsync -a /tmp/x $HOME/runs' EXIT\nsrun python train.py --save_dir /tmp/x\n",
        "srun python train.py --save_dir /tmp/x\npython merge.py --input /tmp/x --output $HOME/model\n",
        "srun python train.py --save_dir /tmp/x\nsgather -r /tmp/x $HOME/model\n",
    ],
)
def test_checkpoints_that_another_command_brings_elsewhere(run, lines: str) -> None:  # type: ignore[no-untyped-def]
    assert loud(run("a.sbatch", TWO_NODES + lines, "JOB011")) == []


def test_checkpoints_that_stay_on_the_nodes(run) -> None:  # type: ignore[no-untyped-def]
    lines = "mkdir -p /tmp/x\nsrun python train.py --save_dir /tmp/x\nls /tmp/x\n"
    assert loud(run("a.sbatch", TWO_NODES + lines, "JOB011")) == ["error JOB011 4"]


MODULES = "#!/bin/bash\n#SBATCH -N 1\n{}\nMKL_ROOT=/opt/mkl\npython train.py --blas $MKLROOT\n"


@pytest.mark.parametrize("line", ["module load mkl", "ml mkl", "spack load mkl", "module purge; module load a b"])
def test_a_module_may_set_a_variable(run, line: str) -> None:  # type: ignore[no-untyped-def]
    assert loud(run("a.sbatch", MODULES.format(line), "SHL001")) == []


def test_a_module_sets_no_variable_of_the_user(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH -N 1\nmodule load cuda\nMODEL_NAME=a\npython train.py --model $MODELNAME\n"
    assert loud(run("a.sbatch", text, "SHL001")) == ["warning SHL001 5"]
    assert loud(run("b.sbatch", MODULES.format("pwd"), "SHL001")) == ["warning SHL001 5"]


def test_a_variable_of_every_login_is_set(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH -N 1\nLD_LIBRARY_PATHS=/a\nsrun env LD_LIBRARY_PATH=/a:$LD_LIBRARY_PATH ./a.out\n"
    assert loud(run("a.sbatch", text, "SHL001")) == []


DEEPSPEED = (
    "#!/bin/bash\ndeepspeed --num_gpus 4 train.py --per_device_train_batch_size 4 --output_dir out "
    "--learning_rate 1e-4 --bf16 True --deepspeed ds.json\n"
)
CONFIG = """{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}"""
OWN_LOOP = """import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int)
args, _ = parser.parse_known_args()
engine, *_ = deepspeed.initialize(config=args.deepspeed)
"""
TRAINER = "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('a')).train()\n"


@pytest.mark.parametrize(("program", "count"), [(OWN_LOOP, 0), (TRAINER, 3)])
def test_only_the_trainer_compares_its_arguments(tmp_path: Path, program: str, count: int) -> None:
    (tmp_path / "run.sh").write_text(DEEPSPEED)
    (tmp_path / "ds.json").write_text(CONFIG)
    (tmp_path / "train.py").write_text(program)
    assert len([f for f in check([str(tmp_path)]).findings if f.code == "JOB016" and f.level == "error"]) == count


def parser(option: str) -> str:
    return f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--{option}')\np.parse_args()\n"


def test_a_program_of_the_same_name_further_up_may_be_meant(tmp_path: Path) -> None:
    """A script three folders deep is mostly called from the top of its repository."""
    (tmp_path / "scripts" / "a100").mkdir(parents=True)
    (tmp_path / "scripts" / "a100" / "run.sh").write_text("#!/bin/bash\npython train.py --alpha 1\n")
    (tmp_path / "scripts" / "train.py").write_text(parser("beta"))
    assert loud(check([str(tmp_path)]).findings) == ["error JOB013 2"]
    (tmp_path / "train.py").write_text(parser("alpha"))
    assert loud(check([str(tmp_path)]).findings) == []


def fixes(findings) -> list[str]:  # type: ignore[no-untyped-def]
    return [finding.fix for finding in findings]


def test_the_rank_of_a_node_is_not_that_of_its_task(run) -> None:  # type: ignore[no-untyped-def]
    """SLURM_LOCALID is 0 on each node with one task, whichever shell expands it."""
    head = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\n"
    static = f"{head}srun torchrun --nnodes=2 --node_rank=$SLURM_LOCALID --master_addr=a --master_port=1234 train.py\n"
    [fix] = fixes(run("a.sbatch", static, "JOB008"))
    assert "$SLURM_NODEID" in fix
    assert "$SLURM_LOCALID" not in fix
    [fix] = fixes(run("b.sbatch", f"{head}export RANK=$SLURM_NODEID\nsrun python train.py\n", "JOB008"))
    assert "export RANK=$SLURM_PROCID" in fix


def test_bash_compares_no_decimals(run) -> None:  # type: ignore[no-untyped-def]
    head = "#!/bin/bash\n#SBATCH -N 1\n"
    [fix] = fixes(run("a.sbatch", f"{head}if [ $LOSS > 1.5 ]; then echo high; fi\n", "SHL001"))
    assert "bc -l" in fix
    [fix] = fixes(run("b.sbatch", f"{head}if [ $LOSS > 1 ]; then echo high; fi\n", "SHL001"))
    assert "-gt" in fix


def test_the_gpus_of_all_nodes_are_not_those_of_one(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --nodes={} --gres=gpu:4\nsrun python train.py --world $SLURM_GPUS\n"
    [fix] = fixes(run("a.sbatch", text.format(2), "SLU006"))
    assert "$((SLURM_NNODES * SLURM_GPUS_ON_NODE))" in fix
    [fix] = fixes(run("b.sbatch", text.format(1), "SLU006"))
    assert fix == "use $SLURM_GPUS_ON_NODE, or request them with --gpus"


def test_srun_alone_does_not_help_an_endpoint_on_localhost(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH -N 2\ntorchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint={} train.py\n"
    [fix] = [f.fix for f in run("a.sbatch", text.format("localhost:29500"), "JOB009") if "srun" in f.fix]
    assert "--rdzv_endpoint=<first node>:<port>" in fix
    [fix] = [f.fix for f in run("b.sbatch", text.format("$HEAD:29500"), "JOB009") if "srun" in f.fix]
    assert "rdzv_endpoint" not in fix


@pytest.mark.parametrize(
    "line",
    [
        "<% if gpu %>",
        "% if gpu:",
        "%HEADER%",
        "{extra}",
        "@EXTRA@",
        "__EXTRA__",
        "<extra options>",
        "$extra",
        "<%= a %>",
    ],
)
def test_a_line_that_a_program_fills_in_is_no_command(run, line: str) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\n#SBATCH --job-name=a\n{line}\n#SBATCH --nodes=2\nsrun python train.py\n"
    assert [f for f in run("job.sh", text, "SHL001") if f.level != "info"] == []
    assert [f.level for f in run("job.sh", text.replace(line, "set -e"), "SHL001")] == ["warning"]


def test_the_name_of_a_file_says_that_it_is_filled_in(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --nodes=${NODES}\nsrun python train.py\n"
    assert run("job.slurm.tmpl", text, "SLU006") == []
    assert [f.level for f in run("job.slurm", text, "SLU006")] == ["warning"]
