"""`bench checkpoint`: what training waits for, how long saves and loads take, beside torch.save and plain DCP."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from trainwright.bench.machine import result_header
from trainwright.bench.results import whole_number, write_result
from trainwright.errors import UserError
from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.staging import state_bytes
from trainwright.train.checkpoint.stores import FolderStore

State = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sizes", default="64,256", metavar="MB,MB", help="sizes of the state in MB (default: 64,256)")
    add(
        "--repeats",
        type=whole_number,
        default=3,
        metavar="N",
        help="saves of each kind, after one to warm up (default: 3)",
    )
    add("--folder", type=Path, metavar="FOLDER", help="the file system to measure (default: the temporary folder's)")
    add("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    if not all(word.strip().isdecimal() and int(word) for word in args.sizes.split(",")):
        raise UserError(f"cannot read --sizes {args.sizes!r}", fix="MB with commas, such as 64,256")
    for size in args.sizes.split(","):
        try:
            folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=args.folder))
        except OSError as error:
            fix = "give a folder that exists and can be written"
            raise UserError(f"cannot measure: {error.strerror}", where=str(args.folder or ""), fix=fix) from error
        try:
            rows += measure(state_of(int(size) * 10**6, device), folder, device, args.repeats)
        finally:
            shutil.rmtree(folder)
    result = {**result_header("checkpoint"), "device": str(device), "folder": str(args.folder or ""), "rows": rows}
    write_result(result, args.output)
    print(json.dumps(result) if args.json else text(rows))
    return 0


def text(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'method':<18} {'MB':>8} {'training waits':>15} {'save':>10} {'load':>10} {'save GB/s':>10}"]
    for row in rows:
        gb_s = row["bytes"] / row["save_s"] / 1e9
        lines.append(
            f"{row['method']:<18} {row['bytes'] / 1e6:>8,.0f} {row['stall_s'] * 1e3:>12.1f} ms "
            f"{row['save_s'] * 1e3:>7.0f} ms {row['load_s'] * 1e3:>7.0f} ms {gb_s:>10.2f}"
        )
    return "\n".join(lines)


def state_of(size: int, device: torch.device) -> State:
    """Weights and two moments in matrices of 4 MB, as many as it takes."""
    count = max(1, round(size / 3 / 4e6))
    parts = ("model", "m", "v")
    made = {part: {f"w{i}": torch.randn(1000, 1000, device=device) for i in range(count)} for part in parts}
    return {**made, "step": torch.tensor(1)}


def measure(state: State, folder: Path, device: torch.device, repeats: int) -> list[dict[str, Any]]:
    """Every method on the same state, each save made durable."""
    size = state_bytes(state)
    methods = (("torch.save", *_plain(state, folder)), ("synchronous DCP", *_synchronous(state, folder)))
    rows = []
    for name, save_it, load_it in methods:
        seconds = _median(save_it, device, repeats)
        rows.append({"method": name, "bytes": size, "stall_s": seconds, "save_s": seconds,
                     "load_s": _median(load_it, device, 1)})  # fmt: skip
    return [*rows, {"method": "trainwright", "bytes": size, **_ours(state, folder, device, repeats)}]


def _plain(state: State, folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    path = folder / "plain.pt"

    def save_it() -> None:
        with path.open("wb") as out:
            torch.save(state, out)
            out.flush()
            os.fsync(out.fileno())

    return save_it, lambda: torch.load(path)


def _synchronous(state: State, folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    path = folder / "sync"
    return (
        lambda: save(state, storage_writer=FileSystemWriter(path), no_dist=True),
        lambda: load(state, storage_reader=FileSystemReader(path), no_dist=True),
    )


def _ours(state: State, folder: Path, device: torch.device, repeats: int) -> dict[str, float]:
    """The stall holds what the next update of the weights would wait for, if the step before it took no time."""
    checkpointer = Checkpointer(FolderStore(folder / "ours"), Retention(last=1), device, {"name": "benchmark"})
    checkpointer.prepare_saving(state)
    stalls, saves = [], []
    for step in range(repeats + 1):
        checkpointer.wait()
        _synchronize(device)
        stall = checkpointer.save(step, state, {})
        began = time.perf_counter()
        checkpointer.stager.wait_before_update()
        if device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # not the copy's stream: that one runs beside training
        stalls.append(stall + time.perf_counter() - began)
        checkpointer.wait()
        saves.append(stalls[-1] + checkpointer.seconds)
    loading = _median(lambda: checkpointer.load(state), device, 1)
    checkpointer.close()
    return {"stall_s": statistics.median(stalls[1:]), "save_s": statistics.median(saves[1:]), "load_s": loading}


def _median(act: Callable[[], Any], device: torch.device, repeats: int) -> float:
    taken = []
    for _ in range(repeats + 1):
        _synchronize(device)
        began = time.perf_counter()
        act()
        _synchronize(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
