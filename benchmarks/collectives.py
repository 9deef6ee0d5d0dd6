"""What `bench collectives` adds to a bare torch.distributed loop: all-reduce in place, gloo, two ranks, in one run.

    python benchmarks/collectives.py [--json]

Both loops run in the same processes on the same buffer, in turns, so that a busy machine slows both. The figure is the
median over the turns of our time divided by the bare loop's. Goal: under 1.05 at 1 MiB, under 1.01 at 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from trainwright.bench.operations import OPERATIONS, Buffers, Group
from trainwright.bench.sweep import SweepOptions, mean_seconds

GOALS = {1 << 20: (1.05, 40, 15), 64 << 20: (1.01, 4, 15)}  # size -> (ratio, calls per turn, turns)


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
    ratio = statistics.median(a / b for a, b in zip(ours[1:], bare[1:], strict=True))
    return {
        "size": size,
        "ours_us": statistics.median(ours) * 1e6,
        "bare_us": statistics.median(bare) * 1e6,
        "ratio": ratio,
    }


def rank_main(as_json: bool) -> int:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    group = Group(dist.get_rank(), tuple(range(dist.get_world_size())))
    rows = [compare(size, calls, turns, group) for size, (_, calls, turns) in GOALS.items()]
    passed = all(row["ratio"] < GOALS[int(row["size"])][0] for row in rows)
    if dist.get_rank() == 0:
        if as_json:
            print(json.dumps({"rows": rows, "passed": passed}))
        for row in [] if as_json else rows:
            goal = GOALS[int(row["size"])][0]
            print(f"{row['size'] >> 20:4.0f} MiB   bare {row['bare_us']:10.1f} us   ours {row['ours_us']:10.1f} us   "
                  f"ratio {row['ratio']:.4f}   goal < {goal}")  # fmt: skip
        if not as_json:
            print("pass" if passed else "FAIL")
    dist.destroy_process_group()
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(args.json)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(rank)}) for rank in range(2)]
    return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
