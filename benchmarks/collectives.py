"""What `bench collectives` adds to a bare torch.distributed loop: all-reduce in place, gloo, two ranks, in one run.

    python benchmarks/collectives.py [--json]

Two figures, because a call's own time varies by far more than our share of it on a shared machine:

- added: the time that our loop spends per call beside the collective (both loops with the collective taken out, 200,000
  calls each), as a part of the bare call's median. Goal: under 5 % at 1 MiB, under 1 % at 64 MiB.
- ratio: our median time divided by the bare loop's, in many short turns on the same buffer and processes, with its
  95 % interval (bootstrap over pairs of turns). An interval wholly above the goal fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from trainwright.bench.operations import OPERATIONS, Buffers, Group
from trainwright.bench.sweep import SweepOptions, mean_seconds

GOALS = {1 << 20: (1.05, 10, 100), 64 << 20: (1.01, 1, 100)}  # size -> (ratio, calls per turn, turns)


def bare_seconds(buffer: torch.Tensor, calls: int) -> float:
    """The loop anybody would write."""
    for _ in range(2):
        dist.all_reduce(buffer)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(buffer)
    return (time.perf_counter() - began) / calls


def slowest(seconds: float) -> float:
    """The same figure on every rank."""
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def compare(size: int, calls: int, turns: int, group: Group) -> dict[str, float]:
    buffer = torch.zeros(size // 4)
    options = SweepOptions(iterations=calls, warmup=2)
    op, device = OPERATIONS["all_reduce"], torch.device("cpu")
    ours, bare = [], []
    for turn in range(turns + 1):
        # Who goes first changes, so that neither always finds the warmer cache.
        for name in ("bare", "ours") if turn % 2 else ("ours", "bare"):
            if name == "bare":
                bare.append(slowest(bare_seconds(buffer, calls)))
            else:
                ours.append(slowest(mean_seconds(op, Buffers(buffer, buffer), options, group, device)))
    pairs = list(zip(ours[1:], bare[1:], strict=True))
    low, high = interval(pairs)
    return {
        "size": size,
        "ours_us": statistics.median(ours[1:]) * 1e6,
        "bare_us": statistics.median(bare[1:]) * 1e6,
        "ratio": ratio_of(pairs),
        "low": low,
        "high": high,
        "goal": GOALS[size][0],
    }


def ratio_of(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(ours for ours, _ in pairs) / statistics.median(bare for _, bare in pairs)


def interval(pairs: list[tuple[float, float]], draws: int = 1000) -> tuple[float, float]:
    """95 % interval of the ratio of medians: what other samples of these turns would have given."""
    dice = random.Random(0)
    ratios = sorted(ratio_of(dice.choices(pairs, k=len(pairs))) for _ in range(draws))
    return ratios[draws // 40], ratios[-draws // 40]


def added_seconds(group: Group, calls: int = 200_000) -> float:
    """What one call costs more in our loop than in the bare one, without the collective itself."""
    buffer = torch.zeros(1)
    op, options = OPERATIONS["all_reduce"], SweepOptions(iterations=calls, warmup=2)
    real = dist.all_reduce
    dist.all_reduce = lambda *args, **kwargs: None
    try:
        ours = min(mean_seconds(op, Buffers(buffer, buffer), options, group, buffer.device) for _ in range(5))
        bare = min(bare_seconds(buffer, calls) for _ in range(5))
    finally:
        dist.all_reduce = real
    return slowest(ours - bare)


def verdict(row: dict[str, float]) -> str:
    return "pass" if 1 + row["added"] < row["goal"] and row["low"] < row["goal"] else "FAIL"


def rank_main(args: argparse.Namespace) -> int:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    group = Group(dist.get_rank(), tuple(range(dist.get_world_size())))
    rows = [compare(size, calls, args.turns or turns, group) for size, (_, calls, turns) in GOALS.items()]
    seconds = added_seconds(group)
    for row in rows:
        row["added"] = seconds * 1e6 / row["bare_us"]
    passed = all(verdict(row) == "pass" for row in rows)
    if dist.get_rank() == 0:
        if args.json:
            print(json.dumps({"rows": rows, "passed": passed}))
        for row in [] if args.json else rows:
            print(f"{row['size'] >> 20:4.0f} MiB   bare {row['bare_us']:10.1f} us   added {row['added']:8.4%}   ratio "
                  f"{row['ratio']:.4f} ({row['low']:.4f} to {row['high']:.4f})   goal < {row['goal']}   "
                  f"{verdict(row)}")  # fmt: skip
    dist.destroy_process_group()
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=0, help="turns per size (default: 100)")
    args = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(args)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(rank)}) for rank in range(2)]
    return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
