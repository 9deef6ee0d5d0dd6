"""Predicts a job on this machine's CPU: there is no data sheet for that, so one layer, the head and the optimizer are
timed for a moment and the step is computed from them. The timings are cached for an hour."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.predict.goodput import Goodput
from trainwright.predict.needs import STATE_BYTES, Needs
from trainwright.predict.prediction import Prediction
from trainwright.predict.render import LABELS
from trainwright.predict.setup import Batch
from trainwright.train.flops import flops_per_token, mfu, trained_shape
from trainwright.train.models.shape import ModelShape, block_parameters, parameter_count
from trainwright.train.parallel.plan import ParallelPlan

PROBE_SECONDS = 0.35
KEPT_SECONDS = 3600.0  # a probe is only valid while the machine is as busy as it was then
GLOO_START = 350e-6  # one collective over loopback, by a gloo all-reduce of 8 bytes between two processes
GATHER = 5.0e-3  # s of one FSDP gather or scatter on a CPU: hooks, copies, gloo's threads; two ranks on two cores
SUMS = 3  # small all-reduces per step: tokens, loss, gradient norm
GLOO_RATE = 0.9e9  # bytes/s, two processes on one machine
NOT_PROBED = 1.15  # rotary tables, gradient clipping and casts, which the probe leaves out; from a llama3-8b-debug run
STEP_FIXED = 2.0e-3  # s: data hand-over, gradient norm, metrics
HALF_WIDTH = 0.25
NEVER_S = 1e12  # time between failures of a machine whose failures are not counted
MACHINE_GIB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


@dataclass(frozen=True, slots=True)
class Probe:
    """Seconds for one microbatch through one layer (forward and backward), the head, and the optimizer of one layer."""

    layer: float
    head: float
    optimizer_layer: float
    matmul_gflops: float
    threads: int
    scatter: float  # half the interquartile range of the layer's times over their median: how busy the machine is


def cache_file(key: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "trainwright" / "probes" / f"{key}.json"


def _kept(shape: ModelShape, seq: int, micro: int, threads: int) -> Path:
    sizes = f"{shape.hidden}-{shape.heads}-{shape.kv_heads}-{shape.ffn}-{shape.vocab}-{shape.activation}-{seq}-{micro}"
    return cache_file(f"{platform.node()}-{threads}-{sizes}")


def is_fresh(path: Path) -> bool:
    return path.is_file() and time.time() - path.stat().st_mtime < KEPT_SECONDS


def is_probed(shape: ModelShape, plan: ParallelPlan, batch: Batch) -> bool:
    """Whether a prediction on this machine needs no measurement any more."""
    return is_fresh(_kept(shape, batch.sequence, batch.micro, _threads(plan)[1]))


def _threads(plan: ParallelPlan) -> tuple[int, int]:
    """The machine's cores, and how many threads a rank has of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores, int(os.environ.get("OMP_NUM_THREADS") or max(1, cores // plan.world))


def probe(shape: ModelShape, seq: int, micro: int, threads: int) -> Probe:
    """From the cache, or measured now."""
    path = _kept(shape, seq, micro, threads)
    if is_fresh(path):
        return Probe(**json.loads(path.read_text(encoding="utf-8")))
    timings = measure(shape, seq, micro, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(timings)), encoding="utf-8")
    return timings


def measure(shape: ModelShape, seq: int, micro: int, threads: int) -> Probe:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measure(torch, shape, seq, micro, threads)
    finally:
        torch.set_num_threads(before)


def _measure(torch: Any, shape: ModelShape, seq: int, micro: int, threads: int) -> Probe:
    functional = torch.nn.functional
    h, f, d = shape.hidden, shape.ffn, shape.width_per_head
    gated = shape.gated
    q, kv = shape.heads * d, shape.kv_heads * d
    weights = [torch.randn(n, k) * 0.02 for n, k in ((q + 2 * kv, h), (h, q), (f * (2 if gated else 1), h), (h, f))]
    weights += [torch.ones(h), torch.ones(h)]
    table = torch.randn(shape.vocab, h) * 0.02
    for w in (*weights, table):
        w.requires_grad_()
    x = torch.randn(micro, seq, h)
    labels = torch.randint(shape.vocab, (micro * seq,))

    def layer() -> None:
        a = x.detach().requires_grad_()
        qkv = functional.linear(functional.rms_norm(a, (h,), weights[4]), weights[0])
        parts = qkv.view(micro, seq, -1, d).transpose(1, 2).split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        rotated = [torch.cat((-p[..., d // 2 :], p[..., : d // 2]), -1) * 0.5 + p * 0.5 for p in parts[:2]]
        mixed = functional.scaled_dot_product_attention(
            rotated[0], rotated[1], parts[2], is_causal=True, enable_gqa=True
        )
        b = a + functional.linear(mixed.transpose(1, 2).reshape(micro, seq, q), weights[1])
        up = functional.linear(functional.rms_norm(b, (h,), weights[5]), weights[2])
        inner = functional.silu(up[..., :f]) * up[..., f:] if gated else functional.gelu(up)
        (b + functional.linear(inner, weights[3])).sum().backward()

    def head() -> None:
        logits = functional.linear(x.detach().requires_grad_(), table).flatten(0, 1)
        functional.cross_entropy(logits, labels).backward()

    def square() -> None:
        torch.mm(dense, dense)

    dense = torch.randn(512, 512)
    (layer_s, scatter), (head_s, _) = timed(layer), timed(head)
    optimizer = torch.optim.AdamW(weights, fused=True)
    gflops = 2 * 512**3 / min(times(square)) / 1e9  # the peak: the best, not the usual
    return Probe(layer_s, head_s, timed(optimizer.step)[0], gflops, threads, scatter)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(median, relative scatter) of a call's time."""
    low, middle, high = statistics.quantiles(times(work), n=4)
    return middle, (high - low) / 2 / middle


def times(work: Callable[[], object]) -> list[float]:
    """Seconds of each of as many calls as fit into the allowed time, after two warm-up calls."""
    work()
    work()
    seconds: list[float] = []
    end = time.perf_counter() + PROBE_SECONDS
    while len(seconds) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def predict_local(shape: ModelShape, plan: ParallelPlan, batch: Batch, pace: float = 1.0) -> Prediction:
    """A step of the trainer on this machine's CPU; the ranks of the plan share its cores. `pace` is measured over
    predicted speed of earlier runs here."""
    ranks = plan.world
    cores, threads = _threads(plan)
    timings = probe(shape, batch.sequence, batch.micro, threads)
    crowded = max(1.0, ranks / cores)
    parameters = parameter_count(shape)
    own = parameters / block_parameters(shape) / max(1, ranks)
    parts = {
        "products": timings.layer * NOT_PROBED * shape.layers * batch.count * crowded,
        "head": timings.head * batch.count * crowded,
        "optimizer": timings.optimizer_layer * own * crowded,
        "gradients": exchange(parameters, shape.layers, plan, batch.count, crowded),
        "fixed": STEP_FIXED,
    }
    parts = {name: value / pace for name, value in parts.items()}
    return local_prediction(shape, plan, batch, parts, timings)


def exchange(parameters: int, layers: int, plan: ParallelPlan, count: int, crowded: float) -> float:
    """FSDP over gloo. Between shards, weights are gathered in the forward and the backward and gradients scattered, for
    each layer and for what surrounds the layers, in every microbatch; replicas sum their gradients once per step. Where
    there are more ranks than cores (`crowded`), they wait for each other."""
    ranks, shards = plan.world, plan.shard * plan.cp
    if ranks == 1:
        return 0.0
    calls, size = (layers + 1) * GATHER * crowded, parameters * 4.0
    between_shards = 3 * count * (calls + size * (shards - 1) / shards / GLOO_RATE) if shards > 1 else 0.0
    copies = plan.replicate
    between_replicas = calls + 2 * size / shards * (copies - 1) / copies / GLOO_RATE if copies > 1 else 0.0
    return between_shards + between_replicas + SUMS * GLOO_START * (ranks - 1) * crowded


def local_prediction(
    shape: ModelShape, plan: ParallelPlan, batch: Batch, parts: dict[str, float], timings: Probe
) -> Prediction:
    ranks, step = plan.world, sum(parts.values())
    tokens = batch.sequences(plan) * batch.sequence
    width = HALF_WIDTH + timings.scatter
    rate = tokens / step
    peak = timings.matmul_gflops * 1e9 * ranks
    state = parameter_count(shape) * 16.0 / ranks / 2**30
    size = parameter_count(shape) * STATE_BYTES / 1e9
    return Prediction(
        model=shape.name, instance="", nodes=1, gpus=ranks, plan=str(plan), precision="fp32", trainer="trainwright",
        recompute="none", sequence=batch.sequence, micro_batch=batch.micro, microbatches=batch.count,
        tokens_per_step=tokens, step_time_s=step, tokens_per_s=rate, tokens_per_s_per_gpu=rate / ranks,
        low=rate / ranks / (1 + width), high=rate / ranks * (1 + width),
        mfu=mfu(rate, flops_per_token(trained_shape(shape), batch.sequence), peak), memory_gib=state,
        memory_limit_gib=MACHINE_GIB / ranks, fits="yes",
        exposed_communication_s=parts["gradients"], hidden_communication_s=0.0, bubble_s=0.0,
        parts={name: parts.get(name, 0.0) for name in LABELS}, memory_parts_gib={"state": state},
        goodput=Goodput(1.0, 0.0, 0.0, 0.0, NEVER_S, 0.0),
        needs=Needs(rate * 4.0 / 1e9, size, 0.0, 0.0, None, ""), cost=None, train_tokens=None, train_days=None,
        train_usd=None, outside_evidence=["this machine's CPU, timed just now"],
    )  # fmt: skip
