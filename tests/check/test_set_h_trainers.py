"""Fixes of the rules about trainers, each followed to the letter with DeepSpeed 0.19.8, accelerate 1.15, transformers
5.23: one that names a part of what is needed was followed into a file that the program still refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
AUTO = {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"}
BOTH = {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}


def deepspeed(stage: int = 2, zero: dict[str, Any] | None = None, **top: Any) -> str:
    sizes = {} if top.keys() & BOTH.keys() else {"train_batch_size": 8}
    return json.dumps({**sizes, "zero_optimization": {"stage": stage, **(zero or {})}, **top}, indent=1)


def adam(**params: Any) -> dict[str, Any]:
    return {"type": "Adam", "params": {"lr": 1e-4, **params}}


def cosine(name: str = "WarmupCosineLR", **params: Any) -> dict[str, Any]:
    return {"type": name, "params": {"warmup_num_steps": 9, **params}}


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        (deepspeed(**BOTH), ["remove it: DeepSpeed computes it from the other two and the ranks"]),
        (deepspeed(train_batch_size=12, train_micro_batch_size_per_gpu=8),
         ["write a multiple of 8 × the number of ranks"]),
        (deepspeed(train_batch_size=0, train_micro_batch_size_per_gpu=8),
         ["remove it: DeepSpeed computes it from the others"]),
        (deepspeed(optimizer=adam(max_grad_norm=1)), ["move it to the top of the file, as gradient_clipping"]),
        (deepspeed(optimizer=adam(max_grad_norm=1), gradient_clipping=1),
         ["remove it: gradient_clipping at the top does it"]),
        (deepspeed(optimizer=adam(max_grad_norm=1), train_micro_batch_size_per_gpu="auto"),
         ['remove it, and write "gradient_clipping": "auto" at the top of the file: the Trainer has its own value']),
        (deepspeed(optimizer={"type": "sgd", "params": {"learning_rate": 1}}), ["did you mean SGD?", "write lr"]),
        (deepspeed(optimizer={"type": "AdamW", "params": {"learning_rate": 1}}, **AUTO),
         ['write "lr": "auto" instead']),
        (deepspeed(scheduler=cosine(warmup_min_lr=0, warmup_max_lr=1)),
         ["write warmup_min_ratio, a fraction of lr of the optimizer, for warmup_min_lr and remove warmup_max_lr (the "
          "maximum is lr of the optimizer) and add total_num_steps, the steps of the run"]),
        (deepspeed(scheduler=cosine("WarmupDecayLR"), **AUTO), ['add "total_num_steps": "auto"']),
        (deepspeed(scheduler=cosine("WarmupDecayLr")),
         ["did you mean WarmupDecayLR? Then add total_num_steps, the steps of the run"]),
        (deepspeed(zero={"offload_optimizer_device": "cpu"}), ['did you mean "offload_optimizer": {"device": …}?']),
        (deepspeed().replace("8", "True").replace(": 2", ": None"),
         ["write true for True, null for None (2 places of the file)"]),
    ],
)  # fmt: skip
def test_a_fix_of_deepspeed_is_all_that_is_needed(run: Run, text: str, fixes: list[str]) -> None:
    assert [one.fix for one in run("ds.json", text, "DSP001") if one.level != "info"] == fixes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (deepspeed(overlap_comm=True), 1),
        (deepspeed(stage=3, overlap_comm=True), 0),  # the default of stage 3
        (deepspeed(contiguous_gradients=True, allgather_partitions=True), 0),
        (deepspeed(stage3_gather_16bit_weights_on_model_save=True), 0),  # of no effect in stage 2
        (deepspeed(stage=3, stage3_gather_16bit_weights_on_model_save=True), 1),
        (deepspeed(zero={"overlap_comm": True}, overlap_comm=False), 0),  # the section has it
        (deepspeed(zero={"offload_optimizer": {"device": "cpu"}}, cpu_offload=True), 0),  # both would be refused
        (deepspeed(cpu_offload=True), 1),
        (deepspeed(wall_clock_breakdowns=False), 0),
        (deepspeed(gradient_cliping=1.0), 1),
        (deepspeed(zero_optimization_=3), 0),  # a section, not a number
    ],
)
def test_a_key_without_effect_in_its_place_either_is_a_note(run: Run, text: str, count: int) -> None:
    assert len(loud(run("ds.json", text, "DSP001"))) == count


PLAIN = "engine, *_ = deepspeed.initialize(config='ds.json')\n"


def test_every_auto_is_one_finding(tmp_path: Path, run: Run) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    text = deepspeed(train_batch_size="auto", optimizer=adam(eps="auto"), **AUTO)
    (finding,) = run("ds.json", text, "DSP001")
    assert finding.fix == (
        "write numbers for train_micro_batch_size_per_gpu, gradient_clipping, optimizer.params.eps, and remove "
        "train_batch_size, which DeepSpeed computes"
    )


@pytest.mark.parametrize(
    ("program", "count"),
    [
        ("engine.save_16bit_model(out)\n", 1),
        ("if args.zero_stage == 3:\n    gather(engine)\nelse:\n    engine.save_16bit_model(out)\n", 0),
        ("with deepspeed.zero.GatheredParameters(p):\n    save(p)\nengine.save_16bit_model(out)\n", 0),
    ],
)
def test_weights_that_a_program_gathers_itself(tmp_path: Path, run: Run, program: str, count: int) -> None:
    (tmp_path / "train.py").write_text(PLAIN + program)
    findings = run("ds.json", deepspeed(stage=3), "DSP001")
    assert [one.fix for one in findings] == [
        "write stage3_gather_16bit_weights_on_model_save: true in zero_optimization"
    ] * count


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
num_machines: 1
num_processes: 8
use_cpu: false
"""


def accelerate(*lines: str, kind: str = "DEEPSPEED") -> str:
    return ACCELERATE.format(kind=kind) + "".join(f"{line}\n" for line in lines)


SECTION, NAMED = "deepspeed_config:", "  deepspeed_config_file: ds.json"
NO = "'no', with the quotes"


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        (accelerate("mixed_precision: fp32", kind="MULTI_GPU"), [f"write {NO}"]),  # no without quotes is false
        (accelerate("mixed_precision: bfloat16", kind="MULTI_GPU"), ["write bf16"]),
        (accelerate("mixed_precision: int8", kind="MULTI_GPU"), [f"use {NO}, fp16, bf16 or fp8"]),
        (accelerate("mixed_precision: no", SECTION, NAMED), ["remove it"]),  # refused with its quotes, too
        (accelerate("mixed_precision: bf16", SECTION, NAMED), [
            "remove it: fp16 or bf16 of that file holds, and has to agree with the program's own option"]),
        (accelerate("mixed_precision: bf16", NAMED.strip(), SECTION, "  zero_stage: 2"),
         ["write it in deepspeed_config, and state zero_stage, mixed_precision in that file only"]),
        (accelerate("gradient_accumulation_steps: 4", kind="MULTI_GPU"),
         ["remove it: outside of DeepSpeed the program states it"]),
        (accelerate(kind="FSDP2"), ["write FSDP, and fsdp_version: 2 in fsdp_config"]),
        (accelerate(kind="MULTI-GPU"), ["write MULTI_GPU"]),
        (accelerate(kind="MULTI_TPU"), ["use NO, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED, MEGATRON_LM, XLA"]),
        (accelerate(SECTION, "  gradient_accumulation_step: 2"), []),  # the program's own value is taken
    ],
)  # fmt: skip
def test_a_fix_of_accelerate_is_all_that_is_needed(run: Run, text: str, fixes: list[str]) -> None:
    assert [one.fix for one in run("a.yaml", text, "CFG006", "DSP001") if one.level != "info"] == fixes


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (accelerate("mixed_precision: fp32", kind="MULTI_GPU"), "--mixed_precision bf16"),
        (accelerate("mixed_precision: no", kind="MULTI_GPU"), "--mixed_precision bf16"),
        (accelerate(SECTION, "  zero_stage: 2", "  offload_param_device: cpu"), "--zero_stage 3"),
        (
            accelerate("fsdp_config:", "  fsdp_sharding_strategy: ZERO3", kind="FSDP"),
            "--fsdp_sharding_strategy NO_SHARD",
        ),
    ],
)
def test_an_option_of_the_launcher_wins_over_accelerates_file(tmp_path: Path, run: Run, text: str, option: str) -> None:
    assert len(loud(run("a.yaml", text, "CFG006", "DSP001"))) == 1
    (tmp_path / "run.sh").write_text(f"accelerate launch --config_file a.yaml {option} train.py\n")
    assert loud(run("a.yaml", text, "CFG006", "DSP001")) == []


@pytest.mark.parametrize("address", ["", "main_process_ip: null", "main_process_ip: 10.0.0.1"])
def test_the_nodes_need_an_address_beside_their_ranks(run: Run, address: str) -> None:
    run("a.yaml", accelerate(address, kind="MULTI_GPU").replace("machines: 1", "machines: 2"), "JOB016")
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun accelerate launch --config_file a.yaml t\n"
    (finding,) = run("job.sbatch", job, "JOB016")
    assert ("--main_process_ip" in finding.fix) == ("10." not in address)


@pytest.mark.parametrize(("steps", "count"), [("0.1", 0), ("50", 1), ("100", 0)])
def test_warmup_steps_below_1_are_a_fraction(run: Run, steps: str, count: int) -> None:
    run("ds.json", deepspeed(**AUTO, scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 100}}), "JOB016")
    text = "#!/bin/bash\ndeepspeed sft.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 2"
    assert len(loud(run("run.sh", f"{text} --warmup_steps {steps}\n", "JOB016"))) == count


CUDA, TORCH = "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n", "RUN pip install torch==2.0.1 torchvision==0.15.2\n"
BUILT = "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\n"
HANDED_ON = 'write ENTRYPOINT ["/bin/sh", "-c", "exec {} \\"$@\\"", "sh"]'


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (CUDA + TORCH + "RUN pip install torch==2.1.0\n", "add torchvision==0.16.0 to this command"),
        (CUDA + "RUN pip install torch==2.0.1+cu118 -i https://download.pytorch.org/whl/cu118\n"
         "RUN pip install torchvision==0.16.0\n", "write torchvision==0.15.2, or change line 2"),
        (CUDA + "RUN pip install torch==2.0.1 -i https://download.pytorch.org/whl/cpu\nCMD torchrun t.py\n",
         "leave this option out: the wheels of PyPI have CUDA"),
        (CUDA + "RUN pip install torch==2.0.1+cpu -f https://download.pytorch.org/whl/torch_stable.html\n"
         "CMD torchrun t.py\n", "write torch==2.0.1, without -f or an index: the wheels of PyPI have CUDA"),
        (CUDA + "RUN export DAY=$(date)\nRUN echo $DAY && pip install torch\n",
         "set it in the RUN that reads it, before that command: ENV runs none"),
        (CUDA + "RUN export PATH=~/bin:$PATH\nRUN echo $PATH && pip install torch\n",
         "write ENV PATH=~/bin:$PATH, with the directory's path for ~"),
        (CUDA + "RUN git clone https://github.com/NVIDIA/apex\nRUN cd apex\nRUN pip install .\n",
         "write RUN cd apex && … with the command below, or WORKDIR apex for all that follow"),
        (CUDA + "RUN source env.sh && pip install torch\n", 'write SHELL ["/bin/bash", "-c"] above it'),
        (BUILT + 'ENTRYPOINT ["torchrun", "--nproc_per_node=$N", "t.py"]\nCMD ["--epochs", "1"]\n',
         HANDED_ON.format("torchrun …")),
        (BUILT + 'ENTRYPOINT torchrun --nproc_per_node=$N t.py\nCMD ["--epochs", "1"]\n',
         HANDED_ON.format("…") + ", and CMD as a list"),
    ],
)  # fmt: skip
def test_a_fix_of_a_dockerfile_is_all_that_is_needed(run: Run, text: str, fix: str) -> None:
    assert [one.fix for one in run("Dockerfile", text, "IMG") if one.level != "info"] == [fix]


SCRIPT = """import os, torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
{device}
model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
path = {path}
if rank == 0:
    torch.save(model.state_dict(), path)
state = torch.load(path{onto})
model.load_state_dict(state["model"]); opt.load_state_dict(state["opt"])
loss.backward()
t = torch.tensor(number)
dist.all_reduce(t)
"""


@pytest.mark.parametrize(("path", "count"), [('"m.pt"', 1), ('f"m_{rank}.pt"', 0)])
def test_a_file_of_each_rank_is_read_by_its_own(run: Run, path: str, count: int) -> None:
    text = SCRIPT.format(device="torch.cuda.set_device(local_rank)", path=path, onto="")
    for code in ("PYT002", "PYT003"):
        reads = [one for one in run("train.py", text, code) if "reads" in one.message or "loads" in one.message]
        assert len(reads) == count


@pytest.mark.parametrize(
    ("device", "fix"),
    [
        ("torch.cuda.set_device(local_rank)", "write t = t.cuda() before it"),
        ("device = local_rank", "move t to the GPU of its rank before it"),  # cuda() would be GPU 0 on every rank
    ],
)
def test_a_tensor_goes_to_the_gpu_of_its_rank(run: Run, device: str, fix: str) -> None:
    text = SCRIPT.format(device=device, path='"m.pt"', onto=', map_location="cpu"')
    assert fix in [one.fix for one in run("train.py", text, "PYT002")]
