"""Does float8 learn what bf16 learns? The loss of the 1B shape on real text, from the same start on the same batches.

    PYTHONPATH=src python3 benchmarks/float8_loss.py [--steps 200] [--json FILE]

The text is Python's own standard library, as bytes. Each float8 recipe that the card has is run. A last run, bf16 with
other roundings (not compiled), shows how far two runs come apart by chance alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import torch

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.float8.recipes import RECIPES, lacking
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.schedule import Schedule

SHAPE = replace(lookup("llama3.2-1b"), name="llama-1b-bytes", tied=False, vocab=256)
ROWS, SEQ = 8, 2048
LAST = 10  # steps that the loss at the end is the mean of
RUNS = {
    "bf16": EngineOptions(precision="bf16", compile=True),
    **{name: EngineOptions(precision="fp8", float8=name, compile=True) for name in RECIPES},
    "bf16, not compiled": EngineOptions(precision="bf16"),
}


def text() -> torch.Tensor:
    files = sorted(Path(statistics.__file__).parent.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8).long()


def draw(stream: torch.Tensor, picks: torch.Generator) -> Batch:
    begins = torch.randint(0, len(stream) - SEQ - 1, (ROWS,), generator=picks)
    rows = torch.stack([stream[at : at + SEQ + 1] for at in begins.tolist()])
    return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), torch.arange(SEQ).expand(ROWS, -1))


def losses(options: EngineOptions, steps: int) -> list[float]:
    engine = Engine(SHAPE, ParallelPlan(), options, "cuda")
    stream, picks = text(), torch.Generator().manual_seed(0)
    rate = Schedule("cosine", 3e-4, steps, warmup=steps // 5)
    return torch.stack([engine.train_step([draw(stream, picks)], rate(step)).loss for step in range(steps)]).tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write every step's loss there")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("float8_loss: needs an NVIDIA GPU", file=sys.stderr)
        return 2
    curves = {}
    for name, options in RUNS.items():
        if options.precision == "fp8" and lacking(options.float8, torch.cuda.get_device_capability()):
            continue
        curves[name] = losses(options, args.steps)
        end = statistics.fmean(curves[name][-LAST:])
        gap = end / statistics.fmean(curves["bf16"][-LAST:]) - 1
        print(f"{name:20} loss after {args.steps} steps {end:.4f}, {gap:+.2%} from bf16", flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if args.json:
        args.json.write_text(json.dumps(curves))
    return 0


if __name__ == "__main__":
    sys.exit(main())
