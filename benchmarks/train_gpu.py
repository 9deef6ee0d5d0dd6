"""Training speed and memory on one GPU, beside Hugging Face transformers in the same run.

    PYTHONPATH=src python3 benchmarks/train_gpu.py [--quick] [--only 1b,8b] [--json FILE]

MFU is the trainer's (trainwright/train/flops.py)."""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.flops import flops_per_token, mfu
from trainwright.train.metrics import peak_flops
from trainwright.train.models.hf_config import config_of
from trainwright.train.models.shape import ModelShape, lookup
from trainwright.train.parallel.plan import ParallelPlan

GIB = 2**30
ONE_B = replace(lookup("llama3.2-1b"), name="llama-1b-untied", tied=False)
EIGHT_WIDE = replace(lookup("llama3-8b"), name="llama-8b-width-8-layers", layers=8)
GPT2 = lookup("gpt2-124m")
MOE = replace(lookup("qwen3-30b-a3b"), name="qwen3-30b-a3b-4-layers", layers=4)


@dataclass(frozen=True)
class Case:
    name: str
    shape: ModelShape
    trainer: str  # trainwright | hf-eager | hf-compiled
    batch: int
    seq: int = 8192
    precision: str = "bf16"
    checkpoint: str = "none"
    quick: bool = False


@dataclass(frozen=True)
class Result:
    name: str
    model: str
    trainer: str
    precision: str
    batch: int
    seq: int
    tokens_per_second: float
    mfu: float
    memory_gib: float
    step_ms: float
    first_step_s: float
    loss: float


CASES = [
    Case("1b", ONE_B, "trainwright", 2, checkpoint="selective", quick=True),
    Case("1b", ONE_B, "trainwright", 8, quick=True),
    Case("1b", ONE_B, "trainwright", 16, checkpoint="selective"),
    Case("1b", ONE_B, "trainwright", 8, precision="fp8", quick=True),
    Case("1b", ONE_B, "hf-eager", 2, quick=True),
    Case("1b", ONE_B, "hf-compiled", 2),
    Case("8b", EIGHT_WIDE, "trainwright", 2, checkpoint="selective", quick=True),
    Case("8b", EIGHT_WIDE, "trainwright", 8, quick=True),
    Case("8b", EIGHT_WIDE, "trainwright", 12, checkpoint="selective"),
    Case("8b", EIGHT_WIDE, "trainwright", 8, precision="fp8", quick=True),
    Case("8b", EIGHT_WIDE, "hf-eager", 1),
    Case("gpt2", GPT2, "trainwright", 64, seq=1024, quick=True),
    Case("gpt2", GPT2, "hf-eager", 32, seq=1024),
    Case("gpt2", GPT2, "hf-compiled", 32, seq=1024, quick=True),
    Case("moe", MOE, "trainwright", 8, seq=4096, quick=True),
    Case("moe", MOE, "trainwright", 4, seq=4096),
    Case("moe", MOE, "hf-eager", 8, seq=4096, quick=True),
]


def our_step(case: Case) -> Callable[[Batch], torch.Tensor]:
    options = EngineOptions(precision=case.precision, compile=True, recompute=case.checkpoint)
    engine = Engine(case.shape, ParallelPlan(), options, "cuda")
    return lambda batch: engine.train_step([batch], 1e-4).loss


def peer_step(case: Case) -> Callable[[Batch], torch.Tensor]:
    """Hugging Face with SDPA, fused AdamW, fp32 weights under bf16 autocast, eager or compiled; of a mixture of experts
    bf16 weights, which its grouped products need."""
    with torch.device("cuda"):
        model = peer_model(case.shape, case.seq).to(torch.bfloat16 if case.shape.experts else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if case.trainer == "hf-compiled":
        model.compile(dynamic=False)

    def step(batch: Batch) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=batch.tokens, labels=batch.tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def peer_model(shape: ModelShape, seq: int) -> torch.nn.Module:
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    if shape.experts:
        words = config_of(shape, "bfloat16")
        config = AutoConfig.for_model(words.pop("model_type"), **words)
        config._attn_implementation, config._experts_implementation = "sdpa", "grouped_mm"
        return AutoModelForCausalLM.from_config(config)
    if shape.family == "gpt2":
        config = GPT2Config(n_embd=shape.hidden, n_layer=shape.layers, n_head=shape.heads, use_cache=False)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        config._attn_implementation = "sdpa"
        return GPT2LMHeadModel(config)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=seq,
        tie_word_embeddings=shape.tied,
        use_cache=False,
    )
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def random_batch(case: Case) -> Batch:
    tokens = torch.randint(0, case.shape.vocab, (case.batch, case.seq + 1), device="cuda")
    positions = torch.arange(case.seq, device="cuda").expand(case.batch, -1)
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), positions)


def measure(case: Case, repeats: int) -> Result:
    start_up()
    backends_default()
    began = time.perf_counter()
    step = our_step(case) if case.trainer == "trainwright" else peer_step(case)
    batch = random_batch(case)
    float(step(batch))
    first = time.perf_counter() - began
    for _ in range(3):
        step(batch)
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        loss = step(batch)
        mark.record()
    torch.cuda.synchronize()
    ms = statistics.median(a.elapsed_time(b) for a, b in pairwise(marks))
    speed = case.batch * case.seq / ms * 1000
    memory = torch.cuda.max_memory_allocated() / GIB
    about = (case.name, case.shape.name, case.trainer, case.precision, case.batch, case.seq)
    peak = peak_flops(torch.device("cuda")) or math.nan
    utilisation = mfu(speed, flops_per_token(case.shape, case.seq), peak)
    return Result(*about, speed, utilisation, memory, ms, first, float(loss))


def profile(case: Case) -> None:
    """The kernels of two steps, by their share of the time."""
    start_up()
    step, batch = our_step(case), random_batch(case)
    for _ in range(3):
        step(batch)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(2):
            step(batch)
        torch.cuda.synchronize()
    kernels = sorted(seen.key_averages(), key=lambda k: -k.device_time_total)
    print(f"kernels of {case.name} {case.precision} batch {case.batch} (ms a step, calls a step):")
    print(f"  {sum(k.device_time_total for k in kernels) / 2000:8.2f} in all")
    for kernel in kernels[:40]:
        print(f"  {kernel.device_time_total / 2000:8.2f} {kernel.count // 2:5}  {kernel.key[:110]}")


def start_up() -> None:
    """Give the memory of the case before back."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def backends_default() -> None:
    """The engine chooses an attention kernel for its process; the peer starts from torch's own choice."""
    cuda = torch.backends.cuda
    for enable in (cuda.enable_cudnn_sdp, cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp):
        enable(True)


def roof(seconds: float = 8.0) -> dict[str, tuple[float, float]]:
    """TFLOP/s of the two most expensive kinds of work in the 1B step, in the first tenth of a second and sustained: a
    card at its power limit lowers its clock."""
    start_up()
    backends_default()
    x, weight = (torch.randn(rows, 2048, device="cuda", dtype=torch.bfloat16) for rows in (65_536, 8192))
    q, k, v = (torch.randn(4, heads, 8192, 64, device="cuda", dtype=torch.bfloat16) for heads in (32, 8, 8))
    q.requires_grad_()

    def attention() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        torch.autograd.grad(out, q, out)

    return {
        "matrix product": rates(lambda: x @ weight.t(), 2 * 65_536 * 8192 * 2048, seconds),
        "attention, forward and backward": rates(attention, 7 * 4 * 32 * 8192**2 * 64, seconds),
    }


def rates(work: Callable[[], object], flops: int, seconds: float) -> tuple[float, float]:
    """TFLOP/s of `work` over the first and over the last tenth of a second."""
    work()
    speeds: list[float] = []
    time.sleep(2)  # the card cools down and its clock comes back
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        torch.cuda.synchronize()
        at, done = time.perf_counter(), 0
        while time.perf_counter() - at < 0.1:
            for _ in range(4):
                work()
            torch.cuda.synchronize()
            done += 4
        speeds.append(done * flops / (time.perf_counter() - at) / 1e12)
    return speeds[0], statistics.median(speeds[-10:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the headline cases, 5 steps each")
    parser.add_argument("--only", default="", help="names of cases, with commas: 1b, 8b, gpt2, moe, roof")
    parser.add_argument("--trainer", default="", help="only this trainer")
    parser.add_argument("--profile", action="store_true", help="also say which kernels take the time of our steps")
    parser.add_argument("--json", type=Path, help="write the results there")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("train_gpu: needs an NVIDIA GPU", file=sys.stderr)
        return 2
    wanted = set(filter(None, args.only.split(",")))
    cases = [c for c in CASES if (c.quick or not args.quick) and (not wanted or c.name in wanted)]
    results = []
    print(__doc__.split("\n\n")[-1])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for case in cases:
        if args.trainer and case.trainer != args.trainer:
            continue
        try:
            result = measure(case, 5 if args.quick else 10)
        except Exception:
            print(f"{case.name} {case.trainer} batch {case.batch} {case.precision}: FAILED", file=sys.stderr)
            traceback.print_exc()
            continue
        results.append(result)
        print(
            f"{result.model:26} {result.trainer:12} {result.precision:7} {case.checkpoint:10} batch {result.batch:3}  "
            f"{result.tokens_per_second:9,.0f} tokens/s  MFU {result.mfu:.1%}  {result.memory_gib:6.1f} GiB  "
            f"step {result.step_ms:7.1f} ms  first {result.first_step_s:5.1f} s  loss {result.loss:.3f}",
            flush=True,
        )
        if args.profile and case.trainer == "trainwright":
            profile(case)
    ceilings = roof() if not args.quick and (not wanted or "roof" in wanted) else {}
    for name, (first, last) in ceilings.items():
        print(f"{name}: {first:.0f} TFLOP/s at first, {last:.0f} sustained")
    if args.json:
        args.json.write_text(json.dumps({"results": [asdict(r) for r in results], "roof": ceilings}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
