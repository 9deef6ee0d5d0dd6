"""Every recipe really trains, at its debug size: a few steps in one process, with the words a submission would give."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from resolving import resolved
from trainwright.jobs.command import train_options
from trainwright.recipes.load import names

STEPS = 3


@pytest.mark.parametrize("name", names())
def test_the_debug_size_trains(name: str, tmp_path: Path) -> None:
    from trainwright.train.__main__ import main

    small = name if name == "cpu-ddp" else f"{name}-debug"
    stated = {"sequence": 64, "batch": {"sequences": 4, "micro_batch": 4}, "args": ["--checkpoint-every", "never"]}
    words = train_options(resolved({"recipe": small, **stated}), Path("code"))
    words += ["--folder", str(tmp_path), "--steps", str(STEPS), "--warmup", "1"]
    assert main(words) == 0
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
    # DINO's loss begins low, when teacher and student are the same, and rises before it falls.
    assert losses[-1] < losses[0] or name.startswith("dino"), "three steps on the same kind of text lower the loss"
