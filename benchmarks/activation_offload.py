"""Speed and memory of activation offload on one GPU, beside recomputation: the width of Llama 3 8B with 8 layers.

PYTHONPATH=src python3 benchmarks/activation_offload.py [--batch 8] [--sequence 8192] [--steps 5] [--json FILE]"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan

GIB = 2**30
SHAPE = replace(lookup("llama3-8b"), name="llama-8b-width-8-layers", layers=8)
CASES = [("none", 0.0), ("none", 0.25), ("none", 1.0), ("selective", 0.0), ("selective", 0.25), ("full", 0.0),
         ("full", 1.0)]  # fmt: skip


def random_batch(batch: int, sequence: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, SHAPE.vocab, (batch, sequence + 1), generator=generator)
    return Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(sequence).expand(batch, -1))


def measure(recompute: str, share: float, batch: int, sequence: int, steps: int) -> dict[str, object]:
    """Fresh batches in each step; the first two steps compile and allocate."""
    options = EngineOptions(precision="bf16", compile=True, recompute=recompute, offload_activations=share)
    engine = Engine(SHAPE, ParallelPlan(), options, "cuda")
    seconds, losses = [], []
    for step in range(steps + 2):
        data = random_batch(batch, sequence, step)
        torch.cuda.synchronize()
        if step == 2:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        losses.append(float(engine.train_step([data], 1e-4).loss))
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds[2:])
    return {
        "recompute": recompute, "offload": share, "batch": batch, "sequence": sequence,
        "tokens_per_second": round(batch * sequence / middle), "step_ms": round(1e3 * middle, 1),
        "memory_gib": round(torch.cuda.max_memory_allocated() / GIB, 1),
        "host_gib": round(engine.offload.host_bytes / GIB, 1) if engine.offload else 0.0, "losses": losses,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results there")
    args = parser.parse_args()
    results = []
    for recompute, share in CASES:
        results.append(measure(recompute, share, args.batch, args.sequence, args.steps))
        print(json.dumps(results[-1]), flush=True)
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
