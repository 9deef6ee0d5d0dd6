"""Fixes that a reader follows to the letter: they bring in nothing that the program refuses, or that is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
ADAM = {"type": "AdamW", "params": {"lr": 1e-4, "learning_rate": 1e-4}}
ZERO = {"steps_per_print": 10, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2, "overlap_comm": True}}


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ({"train_batch_size": 8, "optimizer": ADAM, "fp16": {"enabled": True}}, "remove it"),
        ({**ZERO, "overlap_comm": True}, "remove it"),
        (
            {**ZERO, "overlap_comm": True, "sub_group_size": 1},
            "move them into zero_optimization, but remove overlap",
        ),
        (
            {**ZERO, "gradient_accumulation_step": 4},
            "did you mean gradient_accumulation_steps? It must then",
        ),
        ({**ZERO, "optimizer": {"type": "adamw_torch", "params": {"lr": 1}}}, "did you mean AdamW?"),
        ({**ZERO, "wandb": {"enabled": True, "entity": "lab"}}, "did you mean team?"),
        ({**ZERO, "wandb": {"enabled": True, "entity": "lab", "team": "lab"}}, "remove it"),
        ({"zero_optimization": {"stage": 3, "offload_params": {}, "offload_param": {"device": "cpu"}}}, "remove it"),
    ],
)
def test_no_key_is_written_twice_or_against_another(run: Run, content: dict[str, object], fix: str) -> None:
    (finding,) = run("ds.json", json.dumps(content), "DSP001")
    assert finding.fix.startswith(fix)


def test_a_key_that_the_newest_release_refuses_is_not_proposed(run: Run) -> None:
    assert run("ds.json", json.dumps({**ZERO, "sparse_gradient": False}), "DSP001") == []


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"


def test_a_misspelt_key_beside_the_right_one_is_removed(run: Run) -> None:
    (finding,) = run("a.yaml", ACCELERATE + "num_proceses: 4\n", "CFG006")
    assert finding.fix == "remove it"
    twice = "gradient_clipping: 1.0\ndeepspeed_config:\n  gradient_clipping: 1.0\n"
    (finding,) = run("a.yaml", ACCELERATE + twice, "CFG006")
    assert finding.fix == "remove it: deepspeed_config has it"
    factory = "model_name_or_path: a\nstage: sft\ntemplate: b\nlearning_rate: 1e-4\nlearning_rates: 1e-4\n"
    (finding,) = run("sft.yaml", factory, "CFG006")
    assert finding.fix == "remove it: the file has learning_rate"


def test_a_precision_of_the_launcher_takes_the_place_of_the_files(run: Run, tmp_path: Path) -> None:
    text = ACCELERATE + "mixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    assert loud(run("a.yaml", text, "CFG006")) == ["warning CFG006 4"]
    (tmp_path / "run.sh").write_text("accelerate launch --config_file a.yaml --mixed_precision bf16 train.py\n")
    assert run("a.yaml", text, "CFG006") == []


LOADER = """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torchvision import datasets
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2))
loader = DataLoader(datasets.MNIST("."), batch_size=8{})
for epoch in range(3):
    for x, y in loader:
        model(x).sum().backward()
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (", shuffle=True", "DistributedSampler(dataset) in place of shuffle, and"),
        ("", "DistributedSampler(dataset), and"),
    ],
)
def test_a_sampler_comes_in_place_of_shuffle(run: Run, options: str, words: str) -> None:
    (finding,) = run("train.py", LOADER.format(options), "PYT001")
    assert words in finding.fix


def judged(folder: Path, content: dict[str, object], command: str) -> list[str]:
    (folder / "ds.json").write_text(json.dumps(content))
    (folder / "run.sh").write_text(command + "\n")
    return [f.message for f in check([str(folder / "run.sh")], Selection(select=("JOB016",))).findings]


HALF = {"fp16": {"enabled": True}}
FOUR = "torchrun --nproc_per_node=4 a.py --deepspeed ds.json"
TRAINER = "torchrun --nproc_per_node=4 sft.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 2"


@pytest.mark.parametrize(
    ("content", "command", "words"),
    [
        ({"train_batch_size": 30}, "deepspeed --num_gpus=4 a.py --deepspeed_config ds.json", "no multiple of 4 ranks"),
        ({"train_batch_size": 32}, "deepspeed --num_gpus=4 a.py --deepspeed_config ds.json", ""),
        ({"train_batch_size": 30}, "deepspeed --num_gpus=4 -H hosts a.py --deepspeed_config ds.json", ""),
        ({"train_batch_size": 30}, "deepspeed --num_gpus=$N a.py --deepspeed_config ds.json", ""),
        ({"train_batch_size": 30}, "deepspeed a.py --deepspeed_config ds.json", ""),
        ({"train_batch_size": 8, "gradient_accumulation_steps": 4}, FOUR,
         "no multiple of accumulation 4 × 4 ranks = 16"),
        ({"train_batch_size": 64}, TRAINER, "64 is not micro-batch 2 × accumulation 1 × 4 ranks = 8"),
        ({"train_batch_size": 8}, TRAINER, ""),
        ({"train_batch_size": 64}, TRAINER + " --gradient_accumulation_steps 8", ""),
        ({"train_batch_size": 64}, TRAINER + " $ARGS", ""),
        ({"train_batch_size": 30, "tensor_parallel": {"autotp_size": 2}}, TRAINER, ""),
    ],
)  # fmt: skip
def test_the_whole_batch_is_compared_with_the_launchers_ranks(
    tmp_path: Path, content: dict[str, object], command: str, words: str
) -> None:
    messages = judged(tmp_path, {**HALF, **content}, command)
    assert [words in one for one in messages] == ([True] if words else [])


def test_a_schedules_highest_rate_is_the_trainers(tmp_path: Path) -> None:
    schedule = {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4, "warmup_num_steps": 10}}
    (message,) = judged(tmp_path, {**ZERO, "scheduler": schedule}, TRAINER + " --learning_rate 2e-5")
    assert "warmup_max_lr is 0.0001" in message


@pytest.mark.parametrize(("program", "count"), [("PipelineModule(net)", 0), ("deepspeed.initialize()", 1)])
def test_ranks_that_share_a_model_do_not_divide_the_batch(tmp_path: Path, program: str, count: int) -> None:
    (tmp_path / "a.py").write_text(f"import deepspeed\n{program}\n")
    command = "deepspeed --num_gpus=4 a.py --deepspeed_config ds.json"
    assert len(judged(tmp_path, {**HALF, "train_batch_size": 30}, command)) == count


GROUP = """import torch, numpy as np, torch.distributed as dist
dist.init_process_group({backend})
rank = dist.get_rank()
{body}
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(1).backward()
"""


@pytest.mark.parametrize(
    ("body", "backend", "level"),
    [
        ("total = torch.tensor([1.0])\ndist.all_reduce(total)", '"nccl"', ["warning"]),
        ("total = torch.zeros(2)\ntotal[0] = 1\ndist.broadcast(total, src=0)", 'backend="nccl"', ["warning"]),
        ("total = torch.zeros(2)\ntotal += rank\ntotal /= 4\ndist.all_reduce(total)", '"nccl"', ["warning"]),
        ("total = torch.zeros(2)\ntotal += 1\ntotal = total.cuda()\ndist.all_reduce(total)", '"nccl"', []),
        ("total = torch.ones(2)\ntotal @= model.weight\ndist.all_reduce(total)", '"nccl"', []),
        ('total = torch.zeros(2, device="cuda")\ntotal += rank\ndist.all_reduce(total)', '"nccl"', []),
        ("total = torch.zeros(2)\ndist.all_reduce(total)", '"gloo"', []),
        ("total = torch.zeros(2)\ndist.all_reduce(total)", "", []),  # both backends
        ("total = torch.zeros(2)\ndist.all_reduce(total)", '"cpu:gloo,cuda:nccl"', []),
        ('total = torch.zeros(2, device="cuda")\ndist.all_reduce(total)', '"nccl"', []),
        ("total = torch.zeros(2).cuda()\ndist.all_reduce(total)", '"nccl"', []),
        ("total = torch.zeros(2)\ntotal = total.to(rank)\ndist.all_reduce(total)", '"nccl"', []),
        ("total = torch.zeros(2)\ntotal.data = total.cuda()\ndist.all_reduce(total)", '"nccl"', []),
        ("total = torch.zeros(2)\ndist.all_reduce(total, group=hosts)", '"nccl"', []),
        ('torch.set_default_device("cuda")\ntotal = torch.zeros(2)\ndist.all_reduce(total)', '"nccl"', []),
        ("def f(total):\n    dist.all_reduce(total)\n", '"nccl"', []),
    ],
)
def test_nccl_takes_no_tensor_of_the_host(run: Run, body: str, backend: str, level: list[str]) -> None:
    findings = run("train.py", GROUP.format(backend=backend, body=body), "PYT002")
    assert [f.level for f in findings] == level


@pytest.mark.parametrize(
    "body",
    [
        "r = dist.get_rank()\nif r == 0:\n    torch.save(model.state_dict(), 'a.pt')",
        "r, n = dist.get_rank(), dist.get_world_size()\nif not r:\n    torch.save(model.state_dict(), 'a.pt')",
        "r = dist.get_rank()\nfirst = r == 0\nif first:\n    torch.save(model.state_dict(), 'a.pt')",
        "def save(main):\n    if main:\n        torch.save(model.state_dict(), 'a.pt')\nsave(rank == 0)",
        "r = dist.get_rank()\nfor e in range(2):\n    if r:\n        continue\n    torch.save(e, 'a.pt')",
        "class S:\n    def __init__(s, on):\n        s.on = on\n    def put(s):\n        if s.on:\n"
        "            torch.save(1, 'a.pt')\nS(rank == 0).put()",
        "r = dist.get_rank()\nr == 0 and torch.save(1, 'a.pt')",
        "r = dist.get_rank()\nmatch r:\n    case 0:\n        torch.save(1, 'a.pt')",
        "@rank_zero_only\ndef save():\n    torch.save(1, 'a.pt')\nsave()",
        "keep = lambda: torch.save(1, 'a.pt') if rank == 0 else None",
        "with FileLock('a'):\n    torch.save(1, 'a.pt')",
        "r = dist.get_rank()\nif r != 0:\n    dist.barrier()\nload()\nif r == 0:\n    dist.barrier()",
    ],
)
def test_a_rank_has_any_name(run: Run, body: str) -> None:
    assert run("train.py", GROUP.format(backend='"nccl"', body=body), "PYT002") == []


def test_a_result_that_a_rank_took_part_in_is_no_rank(run: Run) -> None:
    body = "acc = validate(model, rank)\nif acc > 1:\n    torch.save(model.state_dict(), 'a.pt')"
    (finding,) = run("train.py", GROUP.format(backend='"nccl"', body=body), "PYT002")
    assert "every rank writes" in finding.message


MAKE = "def make(n, to):\n    text = str(n)\n    to.write_text(text)\n"


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("if rank == 0:\n    torch.save(1, 'a.pt')\nx = torch.load('a.pt')", ["warning"]),
        ("p = 'a.npy'\nif rank == 0:\n    np.save(p, 1)\nprint('loading')\nx = np.load(p)", ["warning"]),
        ("if rank == 0:\n    p.write_text('a')\nx = json.loads(p.read_text())", ["warning"]),
        (
            "if rank == 0:\n    with open('a', 'w') as f:\n        f.write('a')\nwith open('a') as f:\n    f.read()",
            ["warning"],
        ),
        ("if rank == 0:\n    with p.open('w') as f:\n        f.write('a')\nx = json.load(p.open())", ["warning"]),
        ("if rank == 0:\n    json.dump(1, open('a', 'w'))\nx = json.load(open('a'))", ["warning"]),
        (MAKE + "if rank == 0:\n    make(3, to=p)\nx = p.read_text()", ["warning"]),
        (MAKE + "if rank == 0:\n    make(3, p)\ndist.barrier()\nx = p.read_text()", []),
        (MAKE + "if rank == 0:\n    make(3, p)\nx = q.read_text()", []),
        (MAKE + "if rank == 0:\n    make(p, 3)\nx = p.read_text()", []),
        (MAKE + "if rank == 0:\n    make(3, p)\np = p.parent / 'b'\nx = p.read_text()", []),
        (MAKE + "if rank == 0:\n    make(3, p)\nx = p.read_text() if rank == 0 else ''", []),
        (
            MAKE.replace("    to.", "    to = to + str(n)\n    to.")
            + "if rank == 0:\n    make(3, p)\nx = p.read_text()",
            [],
        ),
        (MAKE + "    dist.barrier()\nif rank == 0:\n    make(3, p)\nx = p.read_text()", []),
        ("if rank == 0:\n    open('a', 'a').write('a')\nx = open('a').read()", []),
        ("if rank == 0:\n    open('a', 'w').close()\nwhile not done():\n    pass\nx = open('a').read()", []),
        ("if rank == 0:\n    p.write_text('a')\nwith wait_for(p):\n    x = p.read_text()", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\ndist.barrier()\nx = torch.load('a.pt')", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\n    dist.barrier()\nx = torch.load('a.pt')", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\nmodel = DDP(net)\nx = torch.load('a.pt')", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\nx = torch.load('b.pt')", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\nif rank == 0:\n    x = torch.load('a.pt')", []),
        ("if rank == 0:\n    torch.save(1, 'a.pt')\nelse:\n    wait()\nx = torch.load('a.pt')", []),
        ("if not os.path.exists('a.pt'):\n    torch.save(1, 'a.pt')\nx = torch.load('a.pt')", []),
    ],
)
def test_what_rank_0_writes_is_waited_for(run: Run, body: str, level: list[str]) -> None:
    findings = run("train.py", GROUP.format(backend='"nccl"', body=body), "PYT002")
    assert [f.level for f in findings if "none waits" in f.message] == level


FSDP = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n"


def test_a_misspelt_switch_that_is_off_anyway_is_a_note(run: Run) -> None:
    assert [f.level for f in run("a.yaml", FSDP + "  fsdp_offload_param: false\n", "CFG006")] == ["info"]
    assert [f.level for f in run("a.yaml", FSDP + "  fsdp_offload_param: true\n", "CFG006")] == ["warning"]


def test_the_directory_of_tensorboard_is_its_path(run: Run) -> None:
    content = {**ZERO, "tensorboard": {"enabled": True, "output_dir": "a"}}
    assert [f.fix for f in run("ds.json", json.dumps(content), "DSP001")] == ["did you mean output_path?"]


def test_two_keys_of_a_section_do_not_become_one(run: Run) -> None:
    tensorboard = {"log_dir": "a", "output_dir": "b", "job_nam": "c"}
    content = {**ZERO, "tensorboard": {"enabled": True, **tensorboard}}
    assert [f.fix for f in run("ds.json", json.dumps(content), "DSP001")] == [
        "write output_path for log_dir and job_name for job_nam; remove the others"
    ]
    content["zero_optimization"] = {"stage": 2, "allgather_bucket_sise": 1, "allgather_bucket_sizes": 2}
    content["tensorboard"] = {"enabled": True}
    assert [f.fix for f in run("ds.json", json.dumps(content), "DSP001")] == [
        "write allgather_bucket_size for allgather_bucket_sise; remove the others"
    ]


@pytest.mark.parametrize(
    ("directives", "options", "fix"),
    [
        ("--ntasks-per-node=8", "--nnodes=2 --nproc_per_node=8", "use one task per node (--ntasks-per-node=1), --cpus"),
        ("--ntasks=16", "--nnodes=2 --nproc_per_node=8", "write --ntasks-per-node=1 in place of --ntasks=16"),
        ("--ntasks-per-node=8", "--nnodes=2 --nproc_per_node=1", "write --nnodes=16 there, or --nnodes=$SLURM_NTASKS"),
        ("--ntasks-per-node=1", "--nnodes=4 --nproc_per_node=8", "write --nnodes=2 there, or --nnodes=$SLURM_NNODES"),
    ],
)
def test_torchrun_is_started_once_per_node(run: Run, tmp_path: Path, directives: str, options: str, fix: str) -> None:
    (tmp_path / "launch.sh").write_text(f"#!/bin/bash\ntorchrun {options} --rdzv_endpoint=$HEAD:29500 train.py\n")
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH {directives}\n#SBATCH --gpus-per-node=8\nsrun bash launch.sh\n"
    (finding,) = run("job.sbatch", text, "JOB016")
    assert finding.fix.startswith(fix)


def test_a_key_of_another_launcher_is_named_as_accelerate_does(run: Run) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: DDP\nnum_gpus: 8\nnum_nodes: 1\n"
    refused, unknown = sorted(run("a.yaml", text, "CFG006"), key=lambda f: f.span.line)
    assert refused.fix == "write MULTI_GPU"
    assert unknown.fix == "write num_processes for num_gpus, num_machines for num_nodes"
    (finding,) = run("a.yaml", ACCELERATE + "num_gpus: 8\n", "CFG006")
    assert finding.fix == "remove it"  # num_processes is there
