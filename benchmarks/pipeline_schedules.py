"""Times a step under each pipeline schedule on CPU processes, one thread each, against the bubble that the schedule
leaves in theory. A machine with more free cores than ranks is needed.

    PYTHONPATH=src python benchmarks/pipeline_schedules.py --ranks 4 --microbatches 8"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # before torch is imported
sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "train")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from ranks import run_ranks  # noqa: E402

from trainwright.train.data.batch import Batch  # noqa: E402
from trainwright.train.engine import Engine, EngineOptions  # noqa: E402
from trainwright.train.models.shape import lookup  # noqa: E402
from trainwright.train.parallel.plan import ParallelPlan  # noqa: E402

SCHEDULES = [("1f1b", 1), ("zero-bubble", 1), ("1f1b", 2), ("zero-bubble", 2)]
SEQUENCE = 256


def step_times(ranks: int, microbatches: int, steps: int) -> list[list[float]]:
    """Seconds of each step of each schedule; they take turns, so that a change of the machine's speed meets all."""
    # The table and head are small, so that all stages take about as long.
    shape = replace(lookup("llama3.1-8b-debug"), hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=1536,
                    layers=2 * ranks, vocab=256)  # fmt: skip
    tokens = torch.randint(0, shape.vocab, (1, SEQUENCE), generator=torch.Generator().manual_seed(1))
    batch = [Batch(tokens, tokens.roll(-1, 1), torch.arange(SEQUENCE)[None])] * microbatches
    engines = [
        Engine(shape, ParallelPlan(pp=ranks, virtual_stages=chunks), EngineOptions(pipeline_schedule=kind), "cpu")
        for kind, chunks in SCHEDULES
    ]
    times: list[list[float]] = [[] for _ in engines]
    for _ in range(steps + 1):
        for engine, taken in zip(engines, times, strict=True):
            dist.barrier()
            began = time.perf_counter()
            engine.forward_backward(batch)
            taken.append(time.perf_counter() - began)
            engine.discard()
    return [taken[1:] for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    times = run_ranks(step_times, args.ranks, args.ranks, args.microbatches, args.steps, limit=500)[0]
    print("schedule,stages per rank,median step s,against 1F1B,bubble in theory (of the work)")
    first = statistics.median(times[0])
    for (kind, chunks), taken in zip(SCHEDULES, times, strict=True):
        bubble = (args.ranks - 1) / args.microbatches / chunks / (3 if kind == "zero-bubble" else 1)
        median = statistics.median(taken)
        theory = f"{bubble:.1%}" if chunks == 1 or kind == "1f1b" else ""
        print(f"{kind},{chunks},{median:.3f},{median / first:.3f},{theory}")


if __name__ == "__main__":
    main()
