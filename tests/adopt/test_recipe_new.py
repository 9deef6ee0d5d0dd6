"""`trainwright recipes new`: a job script becomes a recipe that makes its options again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from resolving import resolved
from trainwright.cli.main import cli
from trainwright.errors import UserError
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
    "--data-path /fsx/data/text_document --save-interval 250 --init-method-std 0.01"
)


def made(script: str, folder: Path) -> dict[str, object]:
    return made_with_notes(script, folder)[0]


def made_with_notes(script: str, folder: Path) -> tuple[dict[str, object], str]:
    (folder / "train.sbatch").write_text(HEAD + script + "\n")
    words = ["recipes", "new", "--from", str(folder / "train.sbatch"), "-o", str(folder / "mine.yaml"), "--force"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content: dict[str, object] = yaml.safe_load((folder / "mine.yaml").read_text())
    return content, done.stderr


def test_the_recipe_makes_the_options_again(tmp_path: Path) -> None:
    recipe = made(f"srun torchrun --nproc_per_node=8 --nnodes=2 /opt/megatron-lm/pretrain_gpt.py {MEGATRON}", tmp_path)
    assert recipe["model"] == "gpt3-7.5b"
    assert recipe["batch"] == {"sequences": 288, "micro_batch": 1}
    job = resolved({"recipe": str(tmp_path / "mine.yaml")}, 16, "p4de.24xlarge")
    words = " ".join(framework_launch(job, tmp_path, tmp_path).options) + " "
    for option in MEGATRON.split(" --"):
        assert f"--{option.removeprefix('--')} " in words, option


PROGRAM = "srun torchrun --nproc_per_node=8 --nnodes=2 /opt/megatron-lm/pretrain_gpt.py"
LLAMA = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--ffn-hidden-size 14336 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--untie-embeddings-and-output-weights --seq-length 8192 --train-iters 5000 --micro-batch-size 1 "
    "--global-batch-size 128 --lr 3e-4 --bf16"
)


def rendered(folder: Path) -> str:
    job = resolved({"recipe": str(folder / "mine.yaml")}, 16, "p4de.24xlarge")
    return " ".join(framework_launch(job, folder, folder).options) + " "


def test_a_model_is_matched_by_all_that_is_stated(tmp_path: Path) -> None:
    """Llama 3 and 3.1 have one shape, and other models the same layers, width and heads."""
    recipe, notes = made_with_notes(f"{PROGRAM} {LLAMA} --data-path /fsx/a --rotary-base 500000", tmp_path)
    assert recipe["model"].startswith("llama3")
    assert "not certain" in notes
    assert "would fit too" in notes
    assert "not stated: vocab" in notes
    other = LLAMA.replace("14336", "14337")
    recipe, notes = made_with_notes(f"{PROGRAM} {other} --data-path /fsx/a", tmp_path)
    assert "model" not in recipe
    assert "none of the catalog has" in notes
    assert "--ffn-hidden-size 14337 " in rendered(tmp_path)
    assert "--num-layers 32 " in rendered(tmp_path)
    plain = LLAMA.replace("--group-query-attention --num-query-groups 8 ", "")
    assert "model" not in made(f"{PROGRAM} {plain} --data-path /fsx/a", tmp_path)  # no model has 14336 without groups


def test_data_of_the_script_is_never_replaced_by_samples(tmp_path: Path) -> None:
    recipe, notes = made_with_notes(f"{PROGRAM} {LLAMA} --data-path 0.3 /fsx/a 0.7 /fsx/b", tmp_path)
    assert recipe["data"] == "/fsx/a"
    assert "blend of 2 parts" in notes
    assert "--data-path 0.3 /fsx/a 0.7 /fsx/b " in rendered(tmp_path)
    assert "--mock-data" not in rendered(tmp_path)
    _, notes = made_with_notes(f"{PROGRAM} {LLAMA} --train-data-path /fsx/a --valid-data-path /fsx/b", tmp_path)
    assert "--mock-data" in notes
    assert "--mock-data" not in rendered(tmp_path)
    assert "--train-data-path /fsx/a " in rendered(tmp_path)


def test_what_is_not_carried_is_named(tmp_path: Path) -> None:
    script = f"#SBATCH --comment=x\nexport NCCL_DEBUG=INFO\n{PROGRAM} stray {LLAMA} --data-path /fsx/a"
    recipe, notes = made_with_notes(script, tmp_path)
    for words in (
        "env (NCCL_DEBUG)",
        "nodes (2)",
        "--comment=x",
        "not understood, kept as words of the program: stray",
    ):
        assert words in notes, notes
    assert recipe["trainer"]["entry"][-1] == "stray"
    assert "without our values" in made_with_notes(f"{PROGRAM} {LLAMA} --vocab-size $VOCAB", tmp_path)[1]


def test_another_program_stays_a_command(tmp_path: Path) -> None:
    recipe = made("srun torchrun --nproc_per_node=8 --nnodes=2 /opt/their/train.py --width 5", tmp_path)
    assert recipe["trainer"] == {"command": ["python", "/opt/their/train.py", "--width", "5"]}


TITAN = "srun torchrun --nproc_per_node=8 --nnodes=2 -m torchtitan.train --job.config_file /fsx/8b.toml"


def test_steps_of_a_kept_command_are_the_scripts(tmp_path: Path) -> None:
    stated = f"{TITAN} --training.steps 500 --checkpoint.interval 50"
    for script in (stated, f"{stated} --job.description $WHAT"):  # the second one is run by a shell
        recipe, notes = made_with_notes(script, tmp_path)
        assert (recipe["steps"], recipe["checkpoint"]) == (500, {"steps": 50})
        assert "steps: not stated" not in notes
    recipe, notes = made_with_notes(f"{TITAN} --training.steps $STEPS", tmp_path)
    assert "steps: not stated" in notes


ACCELERATE = 'srun accelerate launch --num_machines 2 --machine_rank "$SLURM_NODEID" /opt/their/train.py --width 5'


@pytest.mark.parametrize(("platform", "more"), [("parallelcluster", ["--host", "head"]), ("eks", []), ("batch", [])])
def test_a_launcher_of_its_own_is_started_once_per_node(
    platform: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    assert made(ACCELERATE, tmp_path)["trainer"]["launcher"] == "plain"
    spec = {
        "name": "c", "platform": platform, "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2}],
        "storage": [{"mount": "/fsx", "lustre": {}}],
        "jobs": [{"name": "j", "recipe": str(tmp_path / "mine.yaml"), "container": "example.com/t:1"}],
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    words = ["submit", str(tmp_path / "spec.yaml"), *more, "--dry-run", "--json"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    script = json.loads(done.stdout)["script"]
    assert "torchrun" not in script
    assert "NODE_RANK=" in script
    assert "accelerate launch" in script
    if platform == "parallelcluster":
        assert re.findall(r"--ntasks-per-node[= ](\d+)", script) == ["1"]


def test_a_launcher_of_its_own_stays_before_a_known_program(tmp_path: Path) -> None:
    """Megatron is started by torchrun: eight `accelerate launch` per node would be started."""
    script = f"srun accelerate launch --num_machines 2 /opt/megatron-lm/pretrain_gpt.py {MEGATRON}"
    recipe, notes = made_with_notes(script, tmp_path)
    assert recipe["trainer"]["command"][:2] == ["accelerate", "launch"]
    assert (recipe["trainer"]["launcher"], recipe["steps"]) == ("plain", 5000)
    assert "without our values: accelerate starts its ranks" in notes


@pytest.mark.parametrize("words", [["list", "--framework", "verl"], ["list", "--model", "esm2"], ["frameworks"]])
def test_lists(words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["recipes", *words], catch_exceptions=False)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) > 2


def test_words_that_look_like_numbers_stay_words(tmp_path: Path) -> None:
    recipe = made("srun torchrun --nproc_per_node 8 train.py --lr 3e-4 --eps 1e-8 --name 007 --e 1E5", tmp_path)
    command = recipe["trainer"]["command"]
    assert [word for word in command if not isinstance(word, str)] == []
    job = resolved({"recipe": str(tmp_path / "mine.yaml")}, 16, "p4de.24xlarge")
    assert list(job.recipe.trainer.command)[-8:] == ["--lr", "3e-4", "--eps", "1e-8", "--name", "007", "--e", "1E5"]


def test_what_the_script_leaves_at_the_frameworks_default_stays_there(tmp_path: Path) -> None:
    _, notes = made_with_notes(f"{PROGRAM} {LLAMA}", tmp_path)
    job = resolved({"recipe": str(tmp_path / "mine.yaml")}, 16, "p4de.24xlarge")
    options = framework_launch(job, tmp_path, tmp_path).options
    assert not {"--attention-dropout", "--hidden-dropout", "--use-distributed-optimizer"} & set(options)
    assert "--attention-dropout" in notes
    assert {"--exit-signal-handler", "--log-interval", "--save"} <= set(options)


def test_the_model_that_most_people_mean_is_named_first(tmp_path: Path) -> None:
    shape = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu"
    rest = "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --train-iters 10 --bf16"
    assert made(f"{PROGRAM} {shape} {rest} --untie-embeddings-and-output-weights", tmp_path)["model"] == "llama2-7b"


def test_a_launcher_for_all_nodes_becomes_one_per_node(tmp_path: Path) -> None:
    line = "deepspeed --hostfile hosts --num_nodes 2 --num_gpus 8 --master_port 29500 train.py --deepspeed --lr 3e-4"
    trainer = made(line, tmp_path)["trainer"]
    assert trainer == {"command": ["python", "train.py", "--deepspeed", "--lr", "3e-4"]}


def test_the_numbers_of_a_trainers_own_options_are_kept(tmp_path: Path) -> None:
    line = "srun torchrun --nproc_per_node 8 --nnodes 2 run_clm.py --max_steps 1000 --save_steps 200"
    recipe = made(line, tmp_path)
    assert (recipe["steps"], recipe["checkpoint"]) == (1000, {"steps": 200})


def test_a_cluster_of_ray_is_not_made_a_plain_command(tmp_path: Path) -> None:
    (tmp_path / "ray.sbatch").write_text(
        HEAD + "srun --nodes=1 ray start --head --port=6379 --block &\n"
        "srun --overlap --nodes=1 python3 -m verl.trainer.main_ppo trainer.nnodes=2\n"
    )
    done = CliRunner().invoke(cli, ["recipes", "new", "--from", str(tmp_path / "ray.sbatch")])
    assert isinstance(done.exception, UserError)
    assert "Ray cluster" in done.exception.what


def test_a_schedule_that_the_framework_has_no_word_for_is_not_written(tmp_path: Path) -> None:
    line = (
        "srun torchrun --nproc_per_node 32 tp_zero1_llama_hf_pretrain.py --model_path /fsx/config_8b --data_dir /fsx/w "
        "--tensor_parallel_size 32 --batch_size 1 --max_steps 1000 --warmup_steps 100 --lr 1.5e-4 --seq_len 8192 "
        "--checkpoint_freq 5000"
    )
    recipe, notes = made_with_notes(line, tmp_path)
    assert recipe["optimizer"]["schedule"] == "linear"
    assert "every 5000 steps would be none in 1000" in notes
