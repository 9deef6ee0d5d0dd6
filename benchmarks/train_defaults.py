"""The speed of the real entry point, `python -m trainwright.train`, on one GPU and real text, a fresh batch each step:
once with its defaults, and once with each thing that they replace.

    PYTHONPATH=src python3 benchmarks/train_defaults.py [--only 1b,8b] [--what defaults] [--data FOLDER] [--json FILE]

The last column is the whole run: start, measuring the micro-batch, compiling and training."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from train_gpu import EIGHT_WIDE, GPT2, MOE, ONE_B

from trainwright.train.models.shape import ModelShape

GIB = 2**30
SHAPES = {"1b": ONE_B, "8b": EIGHT_WIDE, "moe": MOE, "gpt2": GPT2}
SIZES = {"moe": (4096, 8), "gpt2": (1024, 64)}  # sequence and batch; the others: 8192 and 8


@dataclass(frozen=True)
class Run:
    """One run of the real entry point."""

    case: str
    what: str
    flags: tuple[str, ...]


def runs(shape: str) -> list[Run]:
    if shape in SIZES:
        return [Run(shape, "defaults", ()), Run(shape, "one document", ("--no-isolate",))]
    return [
        Run(shape, "defaults", ()),
        Run(shape, "micro-batch 1", ("--micro-batch", "1")),
        Run(shape, "one document", ("--no-isolate",)),
        Run(shape, "micro-batch 8", ("--micro-batch", "8")),
        Run(shape, "defaults, fp8", ("--precision", "fp8")),
    ]


def measure(shape: ModelShape, run: Run, data: str, steps: int) -> dict[str, object]:
    """Tokens/s (median after the first third of the steps), peak memory and the micro-batch of one run."""
    with tempfile.TemporaryDirectory() as folder:
        fields = {key: value for key, value in asdict(shape).items() if key not in ("name", "source")}
        (Path(folder) / "model.json").write_text(json.dumps(fields))
        words = [sys.executable, "-m", "trainwright.train", "--model", f"{folder}/model.json", "--data", data]
        sequence, batch = SIZES.get(run.case, (8192, 8))
        words += [
            "--sequence",
            str(sequence),
            "--batch",
            str(batch),
            "--steps",
            str(steps),
            "--folder",
            f"{folder}/run",
        ]
        began = time.perf_counter()
        done = subprocess.run([*words, "--checkpoint-every", "never", *run.flags], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
        config = json.loads((Path(folder) / "run" / "config.json").read_text())
        choice = Path(folder) / "run" / "micro_batch.json"
        steady = lines[len(lines) // 3 :]
        return {
            **asdict(run),
            "tokens_per_s": statistics.median(line["tokens_per_s"] for line in steady),
            "mfu": statistics.median(line["mfu"] for line in steady),
            "memory_gib": max(line["memory_gb"] for line in lines) * 1e9 / GIB,
            "micro_batch": config["micro_batch"],
            "measured": json.loads(choice.read_text())["measured_gib"] if choice.exists() else None,
            "loss": lines[-1]["loss"],
            "whole_s": time.perf_counter() - began,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="names of cases, with commas: 1b, 8b, moe, gpt2")
    parser.add_argument("--what", default="", help='one kind of run only, as in "defaults, fp8"')
    parser.add_argument("--data", default="builtin:stdlib", help="a prepared folder")
    parser.add_argument("--steps", type=int, default=20, help="steps of each run")
    parser.add_argument("--json", type=Path, help="write the results there")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("train_defaults: needs an NVIDIA GPU", file=sys.stderr)
        return 2
    wanted, results = set(filter(None, args.only.split(","))), []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.data}")
    for run in (run for name in SHAPES if not wanted or name in wanted for run in runs(name)):
        if args.what not in ("", run.what):
            continue
        try:
            row = measure(SHAPES[run.case], run, args.data, args.steps)
        except RuntimeError as error:
            print(f"{run.case} {run.what}: FAILED\n{error}", file=sys.stderr)
            continue
        results.append(row)
        print(
            f"{run.case:4} {run.what:16} micro-batch {row['micro_batch']}  {row['tokens_per_s']:9,.0f} tokens/s  "
            f"MFU {row['mfu']:.1%}  {row['memory_gib']:6.1f} GiB  loss {row['loss']:.4f}  {row['whole_s']:4.0f} s",
            flush=True,
        )
        if args.json:
            args.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
