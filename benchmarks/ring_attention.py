"""What splitting attention into the blocks of a ring costs, without its transfers: one GPU computes the blocks of every
rank in turn, forward and backward, and is compared with one kernel over the whole sequence. Needs an NVIDIA GPU.

    PYTHONPATH=src python3 benchmarks/ring_attention.py --json ring.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from trainwright.train.kernels.attention_blocks import Whole
from trainwright.train.models.block_mask import TokenLayout
from trainwright.train.models.ring_mask import chunk_positions, ring_mask
from trainwright.train.parallel.ring import ring_backward, ring_forward

HEADS, KV_HEADS, WIDTH = 32, 8, 128


class Standing:
    """A ring in which nothing moves: every rank meets its own block again, which takes as long to compute."""

    def start(self, leaving: torch.Tensor, arriving: torch.Tensor, tag: int) -> list[Any]:
        arriving.copy_(leaving)
        return []


def milliseconds(run: Callable[[], None]) -> float:
    times = []
    for number in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if number > 2:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def tokens(count: int) -> tuple[torch.Tensor, ...]:
    heads = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    return tuple(torch.randn(1, count, h, WIDTH, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for h in heads)


def whole_time(length: int) -> float:
    q, k, v, grad = tokens(length)
    inputs = [x.requires_grad_() for x in (q, k, v)]

    def run() -> None:
        out = F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
        torch.autograd.grad(out, inputs, grad)

    return milliseconds(run)


def ring_time(length: int, ranks: int, documents: int) -> list[float]:
    """Milliseconds of each rank."""
    half, device = length // (2 * ranks), torch.device("cuda")
    index = torch.arange(length, device=device)
    numbers = None if documents == 1 else (index * documents // length)[None]
    times = []
    for rank in range(ranks):
        at = chunk_positions(rank, ranks, half, device)
        layout = TokenLayout(at, index, numbers, None if numbers is None else numbers[:, at])
        mask = ring_mask(0, 0.0, None, False, layout, rank, ranks)
        q, k, v, grad = tokens(2 * half)

        def run(q=q, k=k, v=v, grad=grad, mask=mask) -> None:  # type: ignore[no-untyped-def]
            out, sums = ring_forward(q, k, v, mask, Standing())
            ring_backward(q, k, v, Whole(out, sums, grad, torch.zeros_like(sums)), mask, Standing())

        times.append(milliseconds(run))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cuda.enable_flash_sdp(False)
    rows = []
    with torch.no_grad():
        for length in (16_384, 65_536):
            with torch.enable_grad():
                whole = whole_time(length)
            for ranks in (2, 4, 8):
                for documents in (1, 8):
                    times = ring_time(length, ranks, documents)
                    row = {"length": length, "ranks": ranks, "documents": documents, "whole_ms": whole}
                    rows.append({**row, "rank_ms": times, "sum_over_whole": sum(times) / whole})
                    print(json.dumps(rows[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
