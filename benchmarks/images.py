"""Image loader against the plain PyTorch DataLoader with Pillow and against DALI's CPU pipeline, in one run.

    python benchmarks/images.py [--threads 1,CORES] [--turns 9] [--json]

Each decodes the same JPEG files (500 x 375, in a tar), cuts a random crop, resizes it to 224 and gives normalised float
batches. They run in turns; the figure is the best turn of each, in images per CPU second (of process and workers):
other work on the machine only adds CPU time. Goals: 3 times the DataLoader on the same cores, which is the last thread
count (default: all cores), and at least 0.9 of DALI at every thread count.
DALI takes part where `nvidia-dali-cuda130` is installed; it needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import torch

from trainwright.train.data.images import list_images
from trainwright.train.data.loader_bench import (
    dali_batches,
    has_dali,
    made_up_images,
    measured,
    our_batches,
    plain_batches,
)  # fmt: skip

BATCH, SIDE = 64, 224
GOALS = {"DataLoader": 3.0, "DALI": 0.9}


def compare(entries: list, threads: int, turns: int, seconds: float) -> dict[str, list[float]]:
    """Images per CPU second of each loader, turn by turn."""
    settings = argparse.Namespace(seconds=seconds, step_time=0.0)
    loaders = {
        "trainwright": our_batches(entries, BATCH, SIDE, threads, ""),
        "DataLoader": plain_batches(entries, BATCH, SIDE, threads),
    }
    if has_dali():
        loaders["DALI"] = dali_batches(entries, BATCH, SIDE, threads)
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(turns + 1):
        for name, batches in loaders.items():
            rate = measured(name, batches, threads, settings)["per_cpu_s"]
            if turn:
                rates[name].append(rate)
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        entries, _ = list_images(str(made_up_images(Path(folder), 320)))
        for threads in map(int, args.threads.split(",")):
            rates = compare(entries, threads, args.turns, args.seconds)
            best = {name: max(values) for name, values in rates.items()}
            ratios = {name: best["trainwright"] / best[name] for name in GOALS if name in best}
            rows.append({"threads": threads, "per_cpu_s": best, "ratio": ratios})
    passed = rows[-1]["ratio"]["DataLoader"] >= GOALS["DataLoader"]
    passed = passed and all(row["ratio"].get("DALI", 1.0) >= GOALS["DALI"] for row in rows)
    if args.json:
        print(json.dumps({"rows": rows, "passed": passed}))
        return 0 if passed else 1
    for row in rows:
        rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in row["per_cpu_s"].items())
        ratios = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in row["ratio"].items())
        print(f"{row['threads']} threads: images per CPU second: {rates}; {ratios}")
    print("pass" if passed else "FAIL", "(goals: 3 x the DataLoader, 0.9 x DALI)")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
