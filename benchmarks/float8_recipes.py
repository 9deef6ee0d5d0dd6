"""Tokens per second of each float8 recipe beside bf16, at the widths of the 1B and the 8B Llama, on one GPU.

    PYTHONPATH=src python3 benchmarks/float8_recipes.py [--only 1b,8b] [--recipes rowwise,blockwise] [--json FILE]

Whole steps of the trainer, compiled, at a sequence of 8192 and a batch of 8, one case after the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.float8.recipes import RECIPES, lacking
from trainwright.train.models.shape import ModelShape, lookup
from trainwright.train.parallel.plan import ParallelPlan

SHAPES = {
    "1b": replace(lookup("llama3.2-1b"), name="llama-1b-untied", tied=False),
    "8b": replace(lookup("llama3-8b"), name="llama-8b-width-8-layers", layers=8),
}
ROWS, SEQ, WARM, STEPS = 8, 8192, 3, 8


def batch(shape: ModelShape, step: int) -> Batch:
    tokens = torch.randint(0, shape.vocab, (ROWS, SEQ + 1), generator=torch.Generator().manual_seed(step))
    index = torch.arange(SEQ).expand(ROWS, -1).contiguous()
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), index)


def measure(shape: ModelShape, recipe: str) -> dict[str, float]:
    """Median tokens per second, memory, and the time of the first step, which compiles."""
    options = EngineOptions(precision="bf16", compile=True)
    if recipe != "bf16":
        options = replace(options, precision="fp8", float8=recipe)
    engine = Engine(shape, ParallelPlan(), options, "cuda")
    seconds, loss = [], 0.0
    torch.cuda.reset_peak_memory_stats()
    for step in range(WARM + STEPS):
        given = batch(shape, step)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = float(engine.train_step([given], 1e-4).loss)
        seconds.append(time.perf_counter() - begin)
    memory = torch.cuda.max_memory_allocated() / 2**30
    speed = ROWS * SEQ / statistics.median(seconds[WARM:])
    return {"tokens_per_second": speed, "memory_gib": memory, "first_step_s": seconds[0], "loss": loss}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="1b,8b")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("float8_recipes: needs an NVIDIA GPU", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    rows = []
    for width in args.only.split(","):
        for recipe in ("bf16", *args.recipes.split(",")):
            if recipe != "bf16" and lacking(recipe, torch.cuda.get_device_capability()):
                continue
            rows.append({"width": width, "recipe": recipe, **measure(SHAPES[width], recipe)})
            row, base = rows[-1], next(row for row in rows if row["width"] == width)
            gain = row["tokens_per_second"] / base["tokens_per_second"]
            print(
                f"{width} {recipe:10} {row['tokens_per_second']:9,.0f} tokens/s {gain:5.2f} x bf16 "
                f"{row['memory_gib']:6.1f} GiB  loss {row['loss']:.4f}  first step {row['first_step_s']:.0f} s",
                flush=True,
            )
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
