"""Options of other frameworks are checked before a job waits in a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.catalog.framework_flags import SHIPPED, check_options, framework_of, frameworks, options_of

GOOD: dict[str, str] = {
    "megatron-lm": "--num-layers 36 --hidden-size 4096 --lr 6.0e-5 --split 98,2,0 --fp16 --lr-decay-style cosine "
    "--train-samples 146484375 --recompute-activations --data-path 0.5 /a 0.5 /b --tokenizer-type Llama2Tokenizer",
    "megatron-deepspeed": "--zero-stage 0 --deepspeed --deepspeed_config ./ds.json --bf16 --normalization rmsnorm",
    "torchtitan": "--job.config_file ./llama3_8b.toml --training.steps 100 --parallelism.tensor_parallel_degree=2",
    "torchrun": "--nproc_per_node=8 --nnodes 2 --rdzv-backend=c10d --rdzv_endpoint=$(hostname):29400 --max-restarts 0",
    "accelerate": "--num_processes 64 --num_machines 8 --machine_rank $SLURM_NODEID --rdzv_backend c10d",
    "composer": "--world_size 16 --nproc 8 --node_rank 0 --master_addr host --master_port 29500 --verbose",
    "deepspeed": "--num_nodes 1 --num_gpus 8 --master_addr host",
    "hf-trainer": "--output_dir out --per-device-train-batch-size 8 --learning_rate 1e-4 --bf16 True --my_option 3",
    "bionemo": "--precision=bf16-mixed --num-gpus 8 --num-attention-head 20 --micro-batch-size 2",
    "maxtext": "run_name=x steps=10 dataset_type=synthetic per_device_batch_size=2.5",
    "verl": "trainer.nnodes=4 data.train_files=/a.parquet +custom.key=1 actor_rollout_ref.actor.optim.lr=1e-6",
    "dino": "--arch vit_small --data_path /data --output_dir /out --epochs 100",
}
BAD: list[tuple[str, str, str, str]] = [
    ("megatron-lm", "--num-layer-count 36 --fp16", "no option '--num-layer-count'", "--num-layers"),
    ("megatron-lm", "--hiden-size 4096", "no option '--hiden-size'", "--hidden-size"),
    ("megatron-lm", "--num-layers thirty", "whole number", ""),
    ("megatron-lm", "--num-layers --fp16", "needs a value", ""),
    ("megatron-lm", "--lr-decay-style cosin", "no choice 'cosin'", "cosine"),
    ("megatron-lm", "--fp16=1", "takes no value", ""),
    ("torchtitan", "--training.step 10", "no option '--training.step'", "--training.steps"),
    ("torchrun", "--nprocs-per-node=8", "no option '--nprocs-per-node'", "nproc"),
    ("hf-trainer", "--learnin_rate 1e-4", "no option '--learnin_rate'", "--learning_rate"),
    ("maxtext", "per_device_batchsize=2", "no option 'per_device_batchsize'", "per_device_batch_size"),
    ("composer", "--wrold_size 16", "no option '--wrold_size'", "--world_size"),
]


@pytest.mark.parametrize("framework", GOOD)
def test_right_options_pass(framework: str) -> None:
    assert check_options(framework, GOOD[framework].split()) == []


@pytest.mark.parametrize(("framework", "line", "what", "fix"), BAD)
def test_a_wrong_option_is_named(framework: str, line: str, what: str, fix: str) -> None:
    problems = check_options(framework, line.split())
    assert len(problems) == 1, problems
    assert what in problems[0].what
    assert fix in problems[0].fix
    assert line.split()[problems[0].index] == problems[0].word


def test_an_unknown_framework_has_no_problems() -> None:
    assert check_options("something", ["--x"]) == []


def test_a_command_names_its_framework() -> None:
    assert framework_of(["python", "/workspace/Megatron-LM/pretrain_gpt.py", "--fp16"]) == ("megatron-lm", 2)
    assert framework_of(["python", "pretrain_gpt.py", "--deepspeed"]) == ("megatron-deepspeed", 2)
    assert framework_of(["python", "-m", "torchtitan.train", "--x"]) == ("torchtitan", 3)
    assert framework_of(["python", "train.py"]) == ("", 0)
    assert all(name in frameworks() for name in (framework_of(["train_esm2"])[0], "torchrun", "verl"))


def test_the_table_is_small_and_says_its_source() -> None:
    import gzip

    path = Path(SHIPPED / "framework_flags.tsv.gz")
    assert path.stat().st_size < 150_000
    assert gzip.decompress(path.read_bytes()).startswith(b"# source: ")
    assert len(options_of("megatron-lm")) > 800
