"""Run folders as a job leaves them, small or as long as a month of training, for tests of reports and live views."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

BEGAN = 1_794_754_610.0
HOSTILE = "<script>window.broken=1</script><img src=x onerror=window.broken=1>\"'&"

PREDICTION: dict[str, Any] = {
    "model": "llama3-8b", "instance": "p5.48xlarge", "nodes": 64, "gpus": 512, "plan": "shard=512", "precision": "bf16",
    "tokens_per_s": 5_000_000.0, "tokens_per_s_per_gpu": 9765.6, "low": 8600.0, "high": 11000.0, "step_time_s": 0.8,
    "mfu": 0.42, "memory_gib": 50.0, "memory_limit_gib": 80.0,
    "parts": {"products": 0.5, "attention": 0.1, "weight gathers": 0.15, "optimizer": 0.05},
    "goodput": {"effective": 0.97, "stall_s": 1.1},
    "cost": {"usd_hour": 3520.0, "usd_per_trillion_tokens": 201_000.0, "kind": "on-demand", "region": "us-east-1",
             "date": "2026-08-22", "source": "catalog"},
}  # fmt: skip


def metrics_line(step: int, step_s: float, tokens: int = 4_000_000, **more: Any) -> dict[str, Any]:
    return {
        "step": step, "loss": 2 + 9 * math.exp(-step / 3000), "grad_norm": 1.0, "lr": 3e-4, "tokens": step * tokens,
        "tokens_per_s": tokens / step_s, "mfu": 0.4, "step_s": step_s, "data_wait_s": 0.01, "checkpoint_stall_s": 0.0,
        "memory_gb": 55.0, "goodput": 0.96, "time": BEGAN + step * step_s, "eval_loss": None, **more,
    }  # fmt: skip


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(folder: Path, name: str, **facts: Any) -> Path:
    """`run.json` and the state that was last seen; the rest is the caller's."""
    path = folder / name
    path.mkdir(parents=True)
    run = {
        "name": name, "job": "pretrain", "scheduler": "slurm", "platform": "parallelcluster", "cluster": "gpu",
        "job_id": "7", "nodes": 64, "ranks": 512, "created": BEGAN, "submitted": BEGAN, **facts,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(run))
    status = {"id": "7", "name": name, "state": "completed", "scheduler": "slurm", "exit_code": 0}
    (path / "last_seen.json").write_text(json.dumps({"time": BEGAN, "status": status}))
    return path


def write_long_run(folder: Path, steps: int, ranks: int, every: int) -> Path:
    """A run with one step that took a hundred times longer, one spike of the gradient, and one slow rank."""
    path = write_run(folder, "long", nodes=ranks // 8, ranks=ranks, steps=steps)
    (path / "prediction.json").write_text(json.dumps(PREDICTION))
    noise = random.Random(0)
    with (path / "metrics.jsonl").open("w") as out:
        for step in range(1, steps + 1):
            row = metrics_line(step, 0.85 + 0.02 * noise.random(), grad_norm=1 + noise.random())
            if step == steps // 3:
                row |= {"step_s": 85.0, "grad_norm": 777.0}
            out.write(json.dumps(row) + "\n")
    hosts = [f"train-{rank // 8}" for rank in range(ranks)]
    usual = [round(0.85 + 0.01 * noise.random(), 4) for _ in range(ranks)]
    slow = [time * (1.6 if rank == ranks // 2 else 1.0) for rank, time in enumerate(usual)]
    row = {"hosts": hosts, "data_s": [0.01] * ranks, "from_previous_s": [0.001] * ranks, "from_next_s": [0.001] * ranks}
    fixed = json.dumps({**row, "step_s": usual, "compute_s": slow, "stragglers": []})[1:]
    with (path / "timings.jsonl").open("w") as out:
        for step in range(every, steps + 1, every):
            out.write(f'{{"step": {step}, {fixed}\n')
    events = [{"time": BEGAN, "event": "start", "step": 0, "world": ranks, "plan": "shard=512",
               "versions": {"python": "3.12.3", "torch": "2.11.0", "gpu": "H100"}}]  # fmt: skip
    for step in range(500, steps + 1, 500):
        events.append({"time": BEGAN + 0.85 * step, "event": "save", "step": step, "stall_s": 1.2})
    write_lines(path / "events.jsonl", events)
    return path
