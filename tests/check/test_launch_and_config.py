"""JOB016 and JOB008 on launchers beside their configuration: counts, ranks, sizes, and the layers that FSDP wraps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.check.reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = """#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""


def sbatch(*lines: str, nodes: int = 2) -> str:
    return SBATCH.format(nodes=nodes) + "\n".join(lines) + "\n"


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
num_machines: {machines}
num_processes: {processes}
rdzv_backend: {backend}
use_cpu: false
"""


def accelerate(machines: int = 2, processes: int = 16, backend: str = "static", kind: str = "MULTI_GPU") -> str:
    return ACCELERATE.format(machines=machines, processes=processes, backend=backend, kind=kind)


def launch(*options: str) -> str:
    return f"srun bash -c 'accelerate launch --config_file a.yaml --main_process_ip $HEAD {' '.join(options)} train.py'"


RANK = "--machine_rank $SLURM_NODEID"


@pytest.mark.parametrize(
    ("config", "options", "expected"),
    [
        (accelerate(processes=8), (RANK,), ["warning JOB016 6"]),
        (accelerate(processes=8, backend="c10d"), (), ["warning JOB016 6"]),
        (accelerate(), (), ["error JOB016 6"]),
        (accelerate() + "machine_rank: 0\n", (), ["error JOB016 6"]),
        (accelerate() + "machine_rank: 1\n", (), ["error JOB016 6"]),
        (accelerate(), (RANK,), []),
        (accelerate(backend="c10d"), (), []),
        (accelerate(), ("--rdzv_backend c10d",), []),
        (accelerate(processes=8), (RANK, "--num_processes 16"), []),
        (accelerate(kind="DEEPSPEED"), (), []),  # pdsh and a hostfile
        (accelerate(kind="DEEPSPEED") + "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n", (),
         ["error JOB016 6"]),
        (accelerate(processes=4), (RANK,), []),  # a part of each node may be meant
    ],
)  # fmt: skip
def test_accelerate_on_the_nodes_of_a_job(run: Run, config: str, options: tuple[str, ...], expected: list[str]) -> None:
    run("a.yaml", config, "JOB016")
    assert loud(run("job.sbatch", sbatch(launch(*options)), "JOB016")) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nnodes=2 --nproc-per-node=8 --master_addr $HEAD --master_port 29500 train.py", ["error JOB008 6"]),
        ("python -m torch.distributed.launch --nnodes 2 --nproc_per_node 8 --master_addr $HEAD train.py",
         ["error JOB008 6"]),
        ("accelerate launch --num_machines 2 --num_processes 16 --main_process_ip $HEAD train.py",
         ["warning JOB008 6"]),
        ("torchrun --nnodes=2 --nproc-per-node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py", []),
        ("bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr $HEAD --master_port 1 train.py'", []),
        ("accelerate launch --num_machines 2 --main_process_ip $HEAD --rdzv_backend c10d train.py", []),
        ("torchrun --nnodes=2 --master_addr $HEAD $ARGS train.py", []),
        ("--nodes=1 torchrun --nnodes=2 --master_addr $HEAD train.py", []),
    ],
)  # fmt: skip
def test_no_rank_is_rank_0_on_every_node(run: Run, command: str, expected: list[str]) -> None:
    assert loud(run("job.sbatch", sbatch(f"srun {command}"), "JOB008")) == expected


FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: {policy}
  fsdp_transformer_layer_cls_to_wrap: {layers}
num_machines: 1
num_processes: 8
"""
WRAP = "TRANSFORMER_BASED_WRAP"


@pytest.mark.parametrize(
    ("layers", "model", "count"),
    [
        ("LlamaDecoderLayer", "Qwen/Qwen3-8B-Base", 1),
        ("Qwen2DecoderLayer", "meta-llama/Llama-3.1-8B", 1),
        ("Qwen2DecoderLayer", "Qwen/Qwen3-30B-A3B", 1),
        ("GemmaDecoderLayer", "google/gemma-2-9b-it", 1),
        ("MistralDecoderLayer", "/models/Mixtral-8x7B-v0.1", 1),
        ("Qwen3DecoderLayer", "Qwen/Qwen3-8B-Base", 0),
        ("Qwen2DecoderLayer", "Qwen/Qwen2.5-Coder-7B", 0),
        ("LlamaDecoderLayer", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 0),
        ("Qwen2DecoderLayer", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 0),
        ("LlamaDecoderLayer", "lmsys/vicuna-7b-v1.5", 0),
        ("MyDecoderLayer", "Qwen/Qwen3-8B", 0),
        ("LlamaDecoderLayer", "$MODEL", 0),
        ("LlamaDecoderLayer", "${1:-Qwen/Qwen3-8B}", 0),
        ("Phi3DecoderLayer", "microsoft/phi-4", 0),
    ],
)
def test_the_layer_class_is_one_of_the_model(run: Run, layers: str, model: str, count: int) -> None:
    run("fsdp.yaml", FSDP.format(policy=WRAP, layers=layers), "JOB016")
    text = f"#!/bin/bash\naccelerate launch --config_file fsdp.yaml sft.py --model_name_or_path {model}\n"
    assert len(loud(run("run.sh", text, "JOB016"))) == count


def test_the_layer_class_among_the_options_or_of_another_policy(run: Run) -> None:
    text = "#!/bin/bash\ntorchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen3-8B "
    assert len(loud(run("a.sh", f"{text}--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer\n", "JOB016"))) == 1
    assert loud(run("b.sh", f"{text}--fsdp_transformer_layer_cls_to_wrap Qwen3DecoderLayer\n", "JOB016")) == []
    run("fsdp.yaml", FSDP.format(policy="SIZE_BASED_WRAP", layers="LlamaDecoderLayer"), "JOB016")
    text = "#!/bin/bash\naccelerate launch --config_file fsdp.yaml sft.py --model_name_or_path Qwen/Qwen3-8B\n"
    assert loud(run("c.sh", text, "JOB016")) == []


@pytest.mark.parametrize(
    ("layers", "program", "count"),
    [
        ("GPTNeoXLayer", 'OPTForCausalLM.from_pretrained("facebook/opt-6.7b")', 1),
        ("LlamaDecoderLayer", "Qwen3ForCausalLM(config)", 1),
        ("MistralDecoderLayer", 'AutoModelForCausalLM.from_pretrained(\n    "Qwen/Qwen3-8B"\n)', 1),
        ("OPTDecoderLayer", 'OPTForCausalLM.from_pretrained("facebook/opt-6.7b")', 0),
        ("OPTDecoderLayer", 'AutoModelForCausalLM.from_pretrained("facebook/opt-6.7b")', 0),
        ("LlamaDecoderLayer", "AutoModelForCausalLM.from_pretrained(args.model)", 0),
        ("LlamaDecoderLayer", "Qwen3ForCausalLM(one), LlamaForCausalLM(other)", 0),
        ("LlamaDecoderLayer", "Qwen3ForCausalLM(config); plugin = FullyShardedDataParallelPlugin(policy)", 0),
        ("LlamaDecoderLayer", "MyModel(Qwen3Config())", 0),
    ],
)
def test_the_layer_class_is_one_of_the_program(tmp_path: Path, run: Run, layers: str, program: str, count: int) -> None:
    (tmp_path / "tune.py").write_text(f"from transformers import *\nmodel = {program}\n")
    run("fsdp.yaml", FSDP.format(policy=WRAP, layers=layers), "JOB016")
    text = "#!/bin/bash\naccelerate launch --config_file fsdp.yaml tune.py --lr 1e-5\n"
    assert len(loud(run("run.sh", text, "JOB016"))) == count


TITAN = """[training]
steps = 1000
[parallelism]
data_parallel_shard_degree = {shard}
tensor_parallel_degree = 4
"""


@pytest.mark.parametrize(
    ("shard", "count"), [("4", 0), ("2", 1), ("8", 1), ("-1", 0), ("2\ndata_parallel_replicate_degree = 2", 0)]
)
@pytest.mark.parametrize("path", ["titan.toml", "$SLURM_SUBMIT_DIR/titan.toml", "${SLURM_SUBMIT_DIR}/titan.toml"])
def test_the_degrees_of_torchtitan_make_all_ranks(run: Run, shard: str, count: int, path: str) -> None:
    run("titan.toml", TITAN.format(shard=shard), "JOB016")
    step = "srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:1"
    move = "cd /fsx/torchtitan" if "$" in path else ""
    lines = (f"CONFIG={path}", move, f"{step} -m torchtitan.train --job.config_file $CONFIG")
    assert len(loud(run("job.sbatch", sbatch(*lines), "JOB016"))) == count


def test_degrees_that_the_launcher_changes_are_its_own(run: Run) -> None:
    run("titan.toml", TITAN.format(shard="2"), "JOB016", "JOB002")
    command = "srun torchrun --nnodes=2 --nproc-per-node=8 -m torchtitan.train --job.config_file titan.toml"
    text = sbatch(f"{command} --parallelism.data_parallel_shard_degree 4")
    assert loud(run("job.sbatch", text, "JOB016", "JOB002")) == []


@pytest.mark.parametrize(("batch", "count"), [(512, 0), (500, 1)])
def test_a_batch_of_composer_in_the_directory_of_sbatch(run: Run, batch: int, count: int) -> None:
    run("mpt.yaml", f"max_duration: 100ba\nglobal_train_batch_size: {batch}\n", "JOB016")
    lines = ("export CONF=$SLURM_SUBMIT_DIR/mpt.yaml", "srun bash -c 'composer --world_size 16 --nproc 8 --node_rank "
             "$SLURM_NODEID --master_addr $HEAD /fsx/train.py $CONF'")  # fmt: skip
    assert len(loud(run("job.sbatch", sbatch(*lines), "JOB016"))) == count


DECAYS = """{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": {steps},
"scheduler": {{"type": "{kind}", "params": {{"warmup_num_steps": 50, "total_num_steps": {total}{more}}}}}}}
"""


@pytest.mark.parametrize(
    ("steps", "kind", "total", "more", "option", "count"),
    [
        (1, "WarmupDecayLR", 2000, "", "--train_iters 20000", 1),
        (8, "WarmupDecayLR", 1000, "", "--max_steps 16000", 1),
        (1, "WarmupDecayLR", 20000, "", "--train_iters 20000", 0),
        (8, "WarmupDecayLR", 2000, "", "--max_steps 16000", 0),  # of micro-batches: 2,000 of the optimizer
        (1, "WarmupDecayLR", 2000, ', "warmup_min_lr": 1e-5', "--train_iters 20000", 0),
        (1, "WarmupCosineLR", 2000, "", "--train_iters 20000", 0),
        (1, "WarmupDecayLR", 2000, "", "--train_iters $ITERS", 0),
    ],
)
def test_a_decay_of_deepspeed_that_ends_long_before_the_run(
    run: Run, steps: int, kind: str, total: int, more: str, option: str, count: int
) -> None:
    run("ds.json", DECAYS.format(steps=steps, kind=kind, total=total, more=more), "JOB016")
    text = f"#!/bin/bash\ndeepspeed --num_gpus 8 pretrain.py --deepspeed_config ds.json {option}\n"
    assert [one.level for one in run("run.sh", text, "JOB016")] == ["warning"] * count


@pytest.mark.parametrize(("total", "count"), [("500", 1), ("900", 0), ('"auto"', 0)])
def test_the_trainer_compares_the_length_of_the_schedule(run: Run, total: str, count: int) -> None:
    run("ds.json", DECAYS.format(steps=1, kind="WarmupDecayLR", total=total, more=""), "JOB016")
    text = "#!/bin/bash\ndeepspeed sft.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 2"
    assert len(loud(run("run.sh", f"{text} --max_steps 900\n", "JOB016"))) == count
    assert loud(run("run.sh", f"{text} --max_steps -1 --num_train_epochs 3\n", "JOB016")) == []


def test_a_program_with_a_schedule_of_its_own(tmp_path: Path, run: Run) -> None:
    run("ds.json", DECAYS.format(steps=1, kind="WarmupDecayLR", total=100, more=""), "JOB016")
    (tmp_path / "pretrain.py").write_text("deepspeed.initialize(model=net, lr_scheduler=schedule)\n")
    text = "#!/bin/bash\ndeepspeed --num_gpus 8 pretrain.py --deepspeed_config ds.json --max_steps 9000\n"
    assert loud(run("run.sh", text, "JOB016")) == []


TUNE = "--deepspeed zero2.json --per_device_train_batch_size 4 --output_dir out --gradient_accumulation_steps {steps}"
ZERO = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2, "train_batch_size": "auto"}\n'


def away(move: str, steps: int = 4, before: str = "") -> str:
    options = TUNE.format(steps=steps)
    return sbatch(before, move, f"deepspeed --hostfile hosts --num_nodes 2 --num_gpus 8 tune.py {options}")


@pytest.mark.parametrize("move", ["cd /lustre/tuning", "cd ~/tuning", "cd /home/$USER/tuning", 'cd "$HOME/tuning"'])
def test_a_script_that_goes_to_a_copy_of_its_files(run: Run, move: str) -> None:
    run("zero2.json", ZERO, "JOB016")
    (finding,) = run("job.sbatch", away(move), "JOB016")

    assert (finding.level, finding.span.line) == ("info", 8)
    assert "tuning has the files of this directory" in finding.message
    assert run("right.sbatch", away(move, steps=2), "JOB016") == []


@pytest.mark.parametrize(
    ("move", "before"),
    [
        ("cd /lustre/tuning", "git clone https://example.com/tuning /lustre/tuning"),
        ("cd $RUN", ""),  # one directory of several
        ("cd /lustre/runs/$1", ""),
        ("cd /lustre/tuning", "sed s/2/4/ zero2.json > /lustre/tuning/zero2.json"),
        ("cd /usr/lib", ""),  # a directory that is here: it has no such file
        ("cd /lustre; cd tuning", ""),
    ],
)
def test_a_script_that_goes_to_other_files(run: Run, move: str, before: str) -> None:
    run("zero2.json", ZERO, "JOB016")
    assert run("job.sbatch", away(move, before=before), "JOB016") == []


def test_a_copy_whose_program_sets_the_batch_itself(tmp_path: Path, run: Run) -> None:
    (tmp_path / "tune.py").write_text("import deepspeed\nengine = deepspeed.initialize(args)\n")
    run("zero2.json", ZERO, "JOB016")
    assert run("job.sbatch", away("cd /lustre/tuning"), "JOB016") == []


def test_what_the_launcher_alone_decides_is_said_once(run: Run) -> None:
    run("zero2.json", ZERO, "JOB016")
    options = "--model_name_or_path Qwen/Qwen3-8B --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer"
    text = f"#!/bin/bash\ncd /lustre/tuning\ntorchrun --nproc_per_node 8 sft.py {options} --config_file zero2.json\n"
    assert [f.level for f in run("job.sh", text, "JOB016")] == ["error"]


@pytest.mark.parametrize(
    ("move", "nodes", "expected"),
    [("", 4, ["error"]), ("cd /lustre/pretrain", 4, ["info"]), ("cd /lustre/pretrain", 2, []), ("cd $1", 4, [])],
)
def test_the_nodes_of_a_script_that_srun_starts_elsewhere(run: Run, move: str, nodes: int, expected: list[str]) -> None:
    run("each.sh", f"#!/bin/bash\ntorchrun --nnodes={nodes} --rdzv_endpoint=$HEAD:29500 train.py\n", "JOB016")
    assert [f.level for f in run("job.sbatch", sbatch(move, "srun bash each.sh"), "JOB016")] == expected


@pytest.mark.parametrize(
    "tasks", ["#SBATCH --nodes=0\n#SBATCH --ntasks-per-node=2\n#SBATCH --ntasks=2", "#SBATCH -N 0 -n 16"]
)
def test_a_job_on_no_node_is_compared(run: Run, tasks: str) -> None:
    run(
        "run.sh", "torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py", "J"
    )
    findings = run("job.sbatch", f"#!/bin/bash\n{tasks}\nsrun bash run.sh\n", "JOB016", "TW")
    assert [(one.code, one.fix[:14]) for one in findings] == [("JOB016", "write --nnodes")]
