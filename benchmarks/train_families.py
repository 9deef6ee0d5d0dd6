"""Training speed of GPT-2, encoders, vision transformers, LoRA and T5 on one GPU, each beside a peer in the same run,
through the trainer's own loop and on fresh batches.

    PYTHONPATH=src python3 benchmarks/train_families.py [--only roberta,dino] [--peers] [--json FILE] [--debug]

Every case is a process of its own. `--debug` runs our side at debug size on a CPU, to try the script."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

STEPS, WARM = 24, 8


@dataclass(frozen=True)
class Case:
    """One measurement: our options, the goal, the unit, and the peers that run the same work."""

    model: str
    options: tuple[str, ...]
    batch: int
    unit: str
    goal: float
    peers: tuple[str, ...]


CASES = {
    "gpt2": Case("gpt2-124m", ("--sequence", "1024"), 64, "tok/s", 600_000, ("hf-compiled",)),
    "gpt2-plain": Case("gpt2-124m", ("--sequence", "1024", "--no-isolate"), 64, "tok/s", 600_000, ()),
    "roberta": Case("roberta-large", ("--sequence", "512"), 64, "tok/s", 230_000, ("hf-eager", "hf-compiled")),
    "dino": Case("vit-s-16", (), 128, "img/s", 2_800, ("timm-eager", "timm-compiled")),
    "lora": Case(
        "llama3-8b", ("--sequence", "4096", "--lora-rank", "16", "--base", "random", "--no-isolate"), 2, "tok/s",
        17_000, ("peft-eager",),
    ),
    "lora-fp8": Case(
        "llama3-8b",
        ("--sequence", "4096", "--lora-rank", "16", "--base", "random", "--no-isolate", "--precision", "fp8"),
        2, "tok/s", 17_000, (),
    ),
    "esm2": Case("esm2-650m", ("--sequence", "1024"), 16, "tok/s", 100_000, ("hf-eager",)),
    "t5": Case("t5-v1.1-large", ("--sequence", "512"), 64, "tok/s", 120_000, ()),
}  # fmt: skip


def proteins(folder: Path, residues: int) -> str:
    """Random proteins that fill a sample each: the same work as the peer's."""
    import random

    from trainwright.train.data.prepare import prepare

    dice = random.Random(0)
    text = "".join(f">p{n}\n{''.join(dice.choices('LAGVSERTIDPKQNFYMHWC', k=residues))}\n" for n in range(2000))
    (folder / "p.fasta").write_text(text)
    prepare([str(folder / "p.fasta")], folder / "proteins", tokenizer="esm2", workers=1, quiet=True)
    return str(folder / "proteins")


def data_for(name: str, folder: Path, debug: bool) -> str:
    if name == "esm2":
        return proteins(folder, 62 if debug else 1022)
    return "builtin:textures" if name == "dino" else "builtin:stdlib"


def words(name: str, folder: Path, debug: bool) -> list[str]:
    case = CASES[name]
    batch = 2 if debug else case.batch
    options = [*case.options]
    if debug and "--sequence" in options:
        options[options.index("--sequence") + 1] = "64"
    return [
        "--model", case.model + ("-debug" if debug else ""), "--data", data_for(name, folder, debug), *options,
        "--batch", str(batch), "--micro-batch", str(batch), "--steps", str(STEPS), "--folder", str(folder / "run"),
        "--checkpoint-every", "never", "--watchdog", "0",
    ]  # fmt: skip


def ours(name: str, debug: bool, profile: bool) -> dict[str, Any]:
    """A run of the trainer; then, in the same process, a profile of a few more steps."""
    from trainwright.train.config import parse_arguments
    from trainwright.train.loop import Trainer
    from trainwright.train.metrics import read_lines
    from trainwright.train.world import join_world

    with tempfile.TemporaryDirectory() as temporary:
        began = time.perf_counter()
        config = parse_arguments(words(name, Path(temporary), debug))
        with join_world(config.device, 0, 300) as world:
            trainer = Trainer(config, world)
            trainer.run()
            rows = read_lines(Path(trainer.config.folder) / "metrics.jsonl")
            if profile:
                show_profile(trainer)
    late = rows[WARM:]
    per_sample = rows[0]["tokens"] / trainer.config.batch
    seconds = median(row["step_s"] for row in late)
    speed = trainer.config.batch * (1 if CASES[name].unit == "img/s" else per_sample) / seconds
    return {
        "case": name, "trainer": "trainwright", "speed": speed, "step_ms": 1e3 * seconds, "mfu": late[-1]["mfu"],
        "memory_gib": late[-1]["memory_gb"] * 1e9 / 2**30, "wait": median(row["data_wait_s"] for row in late) / seconds,
        "loss": late[-1]["loss"], "total_s": time.perf_counter() - began,
    }  # fmt: skip


def show_profile(trainer: Any) -> None:
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    data = [trainer.parts.loader.step(n * trainer.config.batch) for n in range(3)]
    if trainer.engine.device.type == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        for n in range(12):
            trainer.engine.train_step(data[n % 3].microbatches, 1e-5)
        queued = time.perf_counter() - began
        torch.cuda.synchronize()
        spent = time.perf_counter() - began
        print(f"bare steps: {1e3 * spent / 12:.1f} ms, queued in {1e3 * queued / 12:.1f} ms", file=sys.stderr)
    with profiled(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for step in data:
            trainer.engine.train_step(step.microbatches, 1e-5)
        if trainer.engine.device.type == "cuda":
            torch.cuda.synchronize()
    show_gaps(recorded.events())
    rows = sorted(recorded.key_averages(), key=lambda row: -row.self_device_time_total)
    rows = [row for row in rows if row.key.startswith(("aten::", "triton", "_", "Mem")) or "::" in row.key]
    total = sum(row.self_device_time_total for row in rows) / 3e3
    print(f"profile: {total:.1f} ms of kernels per step", file=sys.stderr)
    for row in rows[:22]:
        print(f"  {row.self_device_time_total / 3e3:8.2f} ms  {row.count // 3:5d}x  {row.key[:110]}", file=sys.stderr)


def show_gaps(events: Any) -> None:
    """Where the GPU waits: the longest pauses between kernels, and what runs before and after."""
    import torch

    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels = sorted(kernels, key=lambda e: e.time_range.start)
    end, before, gaps, busy = 0.0, "", [], 0.0
    for kernel in kernels:
        start, stop = kernel.time_range.start, kernel.time_range.end
        if end and start > end:
            gaps.append((start - end, before, kernel.name))
        busy += max(0.0, stop - max(start, end))
        if stop > end:
            end, before = stop, kernel.name
    print(f"GPU busy {busy / 3e3:.1f} ms, idle {sum(g[0] for g in gaps) / 3e3:.1f} ms per step", file=sys.stderr)
    for length, first, then in sorted(gaps, reverse=True)[:8]:
        print(f"  idle {length / 1e3:.2f} ms between {first[:55]} and {then[:55]}", file=sys.stderr)


def train_loop(step: Callable[[], Any], per_step: float) -> tuple[float, float]:
    """(speed, step ms) of a peer."""
    import torch

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / 10
    return per_step / seconds, 1e3 * seconds


def peer(name: str, kind: str) -> dict[str, Any]:
    import torch

    build = {"gpt2": hf_gpt2, "roberta": hf_encoder, "esm2": hf_encoder, "dino": timm_dino, "lora": hf_lora}[name]
    loss, params, per_step = build(name, kind.endswith("compiled"))
    optimizer = torch.optim.AdamW(params, lr=1e-5, fused=True)

    def step() -> None:
        loss().backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    speed, milliseconds = train_loop(step, per_step)
    memory = torch.cuda.max_memory_allocated() / 2**30
    return {"case": name, "trainer": kind, "speed": speed, "step_ms": milliseconds, "memory_gib": memory}


def hf_gpt2(name: str, compiled: bool) -> tuple[Callable[[], Any], list[Any], float]:
    import torch
    import transformers

    config = transformers.GPT2Config(use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config).to("cuda")
    if compiled:
        model.compile(dynamic=False)

    def loss() -> Any:
        tokens = torch.randint(0, 50257, (32, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    return loss, list(model.parameters()), 32 * 1024


def hf_encoder(name: str, compiled: bool) -> tuple[Callable[[], Any], list[Any], float]:
    import torch
    import transformers

    if name == "roberta":
        config = transformers.RobertaConfig(
            vocab_size=50265, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
            max_position_embeddings=514, type_vocab_size=1, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
        )  # fmt: skip
        model, rows, length, vocab = transformers.RobertaForMaskedLM(config), 64, 512, 50265
    else:
        config = transformers.EsmConfig(
            vocab_size=33, hidden_size=1280, num_hidden_layers=33, num_attention_heads=20, intermediate_size=5120,
            max_position_embeddings=1026, position_embedding_type="rotary", token_dropout=True, mask_token_id=32,
            pad_token_id=1, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
        )  # fmt: skip
        model, rows, length, vocab = transformers.EsmForMaskedLM(config), 16, 1024, 33
    model = model.to("cuda")
    if compiled:
        model.compile(dynamic=False)

    def loss() -> Any:
        tokens = torch.randint(4, vocab - 1, (rows, length), device="cuda")
        labels = torch.where(torch.rand(tokens.shape, device="cuda") < 0.15, tokens, -100)
        with torch.autocast("cuda", torch.bfloat16):
            return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss

    return loss, [p for p in model.parameters() if p.requires_grad], rows * length


def timm_dino(name: str, compiled: bool) -> tuple[Callable[[], Any], list[Any], float]:
    """DINO with timm's ViT-S/16 as the paper's code does it: large and small crops in two passes."""
    import copy

    import timm
    import torch
    import torch.nn.functional as F

    rows = 128
    backbone = timm.create_model("vit_small_patch16_224", num_classes=0, dynamic_img_size=True)
    layers = [torch.nn.Linear(384, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048), torch.nn.GELU()]
    head = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 256))
    last = torch.nn.Linear(256, 65536, bias=False)
    student = torch.nn.ModuleDict({"backbone": backbone, "head": head, "last": last}).to("cuda")
    teacher = copy.deepcopy(student).requires_grad_(False)
    centre = torch.zeros(65536, device="cuda")
    run = {id(part): torch.compile(part["backbone"], dynamic=False) if compiled else part["backbone"]
           for part in (student, teacher)}  # fmt: skip

    def outputs(part: Any, groups: list[Any]) -> Any:
        x = F.normalize(part["head"](torch.cat([run[id(part)](g) for g in groups])), dim=-1)
        return F.linear(x, F.normalize(part["last"].weight, dim=-1))

    def loss() -> Any:
        large = torch.rand(2 * rows, 3, 224, 224, device="cuda")
        small = torch.rand(8 * rows, 3, 96, 96, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            with torch.no_grad():
                goals = ((outputs(teacher, [large]).float() - centre) / 0.04).softmax(-1).chunk(2)
            scores = (outputs(student, [large, small]).float() / 0.1).chunk(10)
        total: Any = 0.0
        for i, goal in enumerate(goals):
            for j, score in enumerate(scores):
                if i != j:
                    total = total + torch.sum(-goal * F.log_softmax(score, dim=-1), dim=-1).mean()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.996).add_(fast, alpha=0.004)
        return total / 18

    return loss, list(student.parameters()), rows


def hf_lora(name: str, compiled: bool) -> tuple[Callable[[], Any], list[Any], float]:
    import peft
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, use_cache=False,
    )  # fmt: skip
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=names))

    def loss() -> Any:
        tokens = torch.randint(0, 128256, (2, 4096), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    return loss, [p for p in model.parameters() if p.requires_grad], 2 * 4096


def run_case(name: str, kind: str, debug: bool, profile: bool, limit: float) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, __file__, "--one", f"{name}:{kind}", "--json", out.name]
        command += ["--debug"] * debug + ["--profile"] * profile
        try:
            subprocess.run(command, check=True, timeout=limit)
            return json.loads(Path(out.name).read_text())  # type: ignore[no-any-return]
        except (subprocess.SubprocessError, ValueError) as error:
            return {"case": name, "trainer": kind, "error": str(error)[-300:]}


def line(row: dict[str, Any]) -> str:
    case = CASES[row["case"]]
    if "error" in row:
        return f"{row['case']:8} {row['trainer']:14} failed: {row['error'][-120:]}"
    extra = f"  mfu {row['mfu']:.1%}" if row.get("mfu") else ""
    extra += f"  wait {row['wait']:.1%}  goal {case.goal:,.0f}" if "wait" in row else ""
    return (
        f"{row['case']:8} {row['trainer']:14} {row['speed']:10,.0f} {case.unit}  {row['step_ms']:8.1f} ms"
        f"  {row['memory_gib']:6.1f} GiB{extra}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, kind = args.one.split(":")
        row = ours(name, args.debug, args.profile) if kind == "trainwright" else peer(name, kind)
        args.json.write_text(json.dumps(row))
        return 0
    rows = []
    for name in args.only.split(","):
        for kind in ("trainwright", *(CASES[name].peers if args.peers else ())):
            rows.append(run_case(name, kind, args.debug, args.profile, limit=150))
            print(line(rows[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))
    print("\n".join(["", *map(line, rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
