"""Our trainer on the local Slurm: a node dies, and the run ends with the loss of an undisturbed one."""

from __future__ import annotations

import json

import pytest
from slurm_bench import Bench, metrics, report

from trainwright.platforms.local import life
from trainwright.runs.store import Run

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


TINY: dict[str, object] = {
    "model": "llama3.2-1b-debug", "nodes": 2, "processes": 1, "sequence": 64, "batch": {"sequences": 4}, "steps": 24,
    "data": "builtin:stdlib", "checkpoint": {"steps": 4},
}  # fmt: skip


def curve(run: Run) -> dict[int, float]:
    return {record["step"]: record["loss"] for record in map(json.loads, metrics(run))}


def test_a_dead_node_does_not_change_the_loss(bench: Bench) -> None:
    undisturbed = bench.submit_job(**TINY)
    status = bench.end(undisturbed, 180)
    assert status.state == "completed", report(undisturbed)
    struck = bench.submit_job(**TINY)
    bench.at_step(struck, 9, 120)
    life.power_off(bench.record, "train-2")
    status = bench.end(struck, 240)
    life.power_on(bench.record, "train-2")
    assert status.state == "completed", report(struck)
    assert curve(struck) == curve(undisturbed)
    assert sorted(curve(undisturbed)) == list(range(1, 25))
