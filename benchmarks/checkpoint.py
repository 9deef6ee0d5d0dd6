"""How long training waits for a checkpoint: ours, `torch.save`, and synchronous torch.distributed.checkpoint.

    python benchmarks/checkpoint.py [--millions 50] [--repeats 2] [--folder /tmp] [--json]

The state is a model's (weights and two moments in fp32) with as many million parameters as asked for, on the GPU where
there is one. Each way ends with the file system's own promise (fsync). Ours is given as what training waits for (the
stall) and what happens beside it; a step's worth of work goes on meanwhile and is shown with and without the save.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.staging import state_bytes
from trainwright.train.checkpoint.stores import FolderStore


def state_of(millions: float, device: torch.device) -> dict:
    """Matrices of 4 million numbers."""
    count = max(1, round(millions / 4))
    made = {k: {f"w{i}": torch.randn(2000, 2000, device=device) for i in range(count)} for k in ("model", "m", "v")}
    return {**made, "step": torch.tensor(1)}


def seconds(act: Callable[[int], None], device: torch.device, repeats: int) -> float:
    """The median time of `act`, after one warm-up call."""
    found = []
    for repeat in range(repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        act(repeat)
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def torch_save(state: dict, folder: Path) -> Callable[[int], None]:
    def act(repeat: int) -> None:
        with (folder / "plain.pt").open("wb") as out:
            torch.save(state, out)
            out.flush()
            os.fsync(out.fileno())

    return act


def synchronous(state: dict, folder: Path) -> Callable[[int], None]:
    return lambda repeat: save(state, storage_writer=FileSystemWriter(folder / "sync"), no_dist=True)


def asynchronous(state: dict, folder: Path, device: torch.device, repeats: int) -> tuple[float, float]:
    """(stall, background time) of our saves."""
    checkpointer = Checkpointer(FolderStore(folder / "ours"), Retention(last=1), device, {"name": "benchmark"})
    checkpointer.prepare_saving(state)
    stalls, beside = [], []
    for step in range(repeats + 1):
        checkpointer.wait()
        if device.type == "cuda":
            torch.cuda.synchronize()
        stall = checkpointer.save(step, state, {})
        began = time.perf_counter()
        checkpointer.stager.wait_before_update()
        if device.type == "cuda":
            # The wait of the next update of the weights if the step before it took no time.
            torch.cuda.current_stream().synchronize()
        stalls.append(stall + time.perf_counter() - began)
        checkpointer.wait()
        beside.append(checkpointer.seconds)
    return statistics.median(stalls[1:]), statistics.median(beside[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=50, help="parameters, in millions")
    parser.add_argument("--repeats", type=int, default=2, help="saves of each kind, after one to warm up")
    parser.add_argument("--folder", default=None, help="where to write (default: the temporary folder)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        state = state_of(args.millions, device)
        stall, beside = asynchronous(state, folder, device, args.repeats)
        found = {
            "torch.save": seconds(torch_save(state, folder), device, args.repeats),
            "synchronous DCP": seconds(synchronous(state, folder), device, args.repeats),
            "trainwright, stall": stall,
        }
    finally:
        shutil.rmtree(folder)
    size = state_bytes(state)
    ratios = {k: v / stall for k, v in found.items()}
    if args.json:
        facts = {"device": str(device), "bytes": size, "seconds": found, "beside_s": beside, "ratio": ratios}
        print(json.dumps(facts))
        return 0
    print(f"state of {size / 1e9:.2f} GB on {device}")
    for name, value in found.items():
        print(f"{name:<22} {value * 1000:10.1f} ms   {ratios[name]:8.1f} x our stall")
    print(f"{'trainwright, beside':<22} {beside * 1000:10.1f} ms   (with checksums, while training goes on)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
