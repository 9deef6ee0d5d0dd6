"""`bench device`: matmul by shape and precision, memory bandwidth, host to device, peer to peer."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.bench.machine import result_header
from trainwright.bench.results import positive, write_result
from trainwright.errors import UserError

# Shapes of a large product, of an 8B model's feed-forward layer, and of its attention output, at 8,192 tokens.
SHAPES = ((8192, 8192, 8192), (8192, 14336, 4096), (8192, 4096, 14336), (8192, 4096, 4096))
CPU_SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--shape", action="append", default=[], metavar="M,N,K", help="a matmul to measure instead of the usual ones")
    add("--seconds", type=positive, default=1.0, help="time for each measurement (default: 1)")
    add("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace, words: list[str]) -> int:
    import torch

    cuda = torch.cuda.is_available()
    shapes = [shape_of(text) for text in args.shape] or (SHAPES if cuda else CPU_SHAPES)
    rows = []
    for number in range(torch.cuda.device_count()) if cuda else [0]:
        device = torch.device("cuda", number) if cuda else torch.device("cpu")
        rows += device_rows(device, shapes, args.seconds)
    if cuda:
        rows += peer_rows(args.seconds)
    result = {**result_header("device"), "rows": rows}
    write_result(result, args.output)
    print(json.dumps(result) if args.json else text(rows))
    return 0


def shape_of(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) != 3 or not all(word.strip().isdecimal() and int(word) for word in words):
        raise UserError(f"--shape {text} is no shape of a matmul", fix="M,N,K such as --shape 4096,4096,4096")
    return tuple(map(int, words))


def text(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'device':<8} {'measurement':<38} {'achieved':>10}  unit"]
    return "\n".join([*lines, *(f"{r['device']:<8} {r['name']:<38} {r['value']:>10,.1f}  {r['unit']}" for r in rows)])


def device_rows(device: Any, shapes: Any, seconds: float) -> list[dict[str, Any]]:
    cuda = device.type == "cuda"
    rows = []
    for precision in ("bf16", "fp8", "fp32") if cuda else ("fp32", "bf16"):
        for shape in shapes:
            rate = matmul_tflops(device, shape, precision, seconds)
            if rate is not None:
                name = f"matmul {precision} {' x '.join(map(str, shape))}"
                rows.append(_row(device, f"matmul {precision}", name, rate, "TFLOP/s"))
    rows.append(_row(device, "memory", "memory copy, read and write", copy_gb_s(device, seconds), "GB/s"))
    if cuda:
        for way in ("to device", "to host"):
            rate = transfer_gb_s(device, way, seconds)
            start = "host" if way == "to device" else "device"
            rows.append(_row(device, "host", f"pinned memory, {start} {way}", rate, "GB/s"))
    return rows


def _row(device: Any, kind: str, name: str, value: float, unit: str) -> dict[str, Any]:
    return {"device": str(device), "kind": kind, "name": name, "value": value, "unit": unit}


def matmul_tflops(device: Any, shape: tuple[int, ...], precision: str, seconds: float) -> float | None:
    """None where the device has no such unit."""
    import torch

    m, n, k = shape
    if precision == "fp8":
        if torch.cuda.get_device_capability(device) < (8, 9):
            return None
        one = torch.tensor(1.0, device=device)
        a = torch.randn(m, k, device=device).to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device=device).to(torch.float8_e4m3fn).t()
        taken = timed(lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16), device, seconds)
    else:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = torch.randn(m, k, device=device, dtype=dtype), torch.randn(k, n, device=device, dtype=dtype)
        taken = timed(lambda: torch.mm(a, b), device, seconds)
    return 2 * m * n * k / taken / 1e12


def copy_gb_s(device: Any, seconds: float) -> float:
    """A copy inside the device's memory; each byte is read once and written once."""
    import torch

    size = 1 << 30 if device.type == "cuda" else 1 << 27
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / timed(lambda: target.copy_(source), device, seconds) / 1e9


def transfer_gb_s(device: Any, way: str, seconds: float) -> float:
    import torch

    size = 1 << 28
    host, card = torch.ones(size, dtype=torch.uint8).pin_memory(), torch.empty(size, dtype=torch.uint8, device=device)
    target, source = (card, host) if way == "to device" else (host, card)
    return size / timed(lambda: target.copy_(source, non_blocking=True), device, seconds) / 1e9


def peer_rows(seconds: float) -> list[dict[str, Any]]:
    """Every GPU to every other, one pair at a time: a slow link stands out."""
    import torch

    rows, size = [], 1 << 28
    for a in range(torch.cuda.device_count()):
        for b in range(torch.cuda.device_count()):
            if a != b:
                source = torch.ones(size, dtype=torch.uint8, device=f"cuda:{a}")
                target = torch.empty(size, dtype=torch.uint8, device=f"cuda:{b}")
                taken = timed(partial(target.copy_, source), torch.device("cuda", a), seconds / 4)
                link = "peer" if torch.cuda.can_device_access_peer(b, a) else "through the host"
                rows.append(_row(f"cuda:{a}", "peer", f"to cuda:{b}, {link}", size / taken / 1e9, "GB/s"))
    return rows


def timed(act: Callable[[], Any], device: Any, seconds: float) -> float:
    """Mean seconds of one call over about `seconds`, after a warm-up that also says how many calls that is."""
    import torch

    def batch(calls: int) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(calls):
            act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    batch(2)
    once = batch(3) / 3
    calls = max(3, int(seconds / max(once, 1e-6)))
    return batch(calls) / calls
