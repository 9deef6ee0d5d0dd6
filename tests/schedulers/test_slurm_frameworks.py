"""A job of another framework gets what ours gets: on the local Slurm a node dies, and the run comes back from its
checkpoint with the losses that it would have had."""

from __future__ import annotations

import json

import pytest
from slurm_bench import Bench, metrics, report

from trainwright.platforms.local import life

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.long]
STEPS = 400


@pytest.mark.timeout(600)
@pytest.mark.proves("ddp-mnist", "cpu")
def test_a_dead_node_costs_only_the_steps_since_the_checkpoint(bench: Bench) -> None:
    run = bench.submit_job(
        recipe="ddp-mnist", data="builtin:shapes", nodes=2, processes=1, steps=STEPS, batch={"sequences": 1024},
        checkpoint={"steps": 50}, optimizer={"warmup": 10},
    )  # fmt: skip
    bench.at_step(run, 170, 240)
    life.power_off(bench.record, "train-2")
    status = bench.end(run, 240)
    life.power_on(bench.record, "train-2")
    assert status.state == "completed", report(run)
    rows = [json.loads(line) for line in metrics(run)]
    steps = [row["step"] for row in rows]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    [back] = [at for at in range(1, len(steps)) if steps[at] != steps[at - 1] + 1]
    assert steps[back] % 50 == 1, "it goes on after a checkpoint"
    assert steps[back] > 100
    assert steps[back - 1] - steps[back] < 50
    before = {row["step"]: row["loss"] for row in rows[:back]}
    again = [row for row in rows[back:] if row["step"] in before]
    assert [row["loss"] for row in again] == [before[row["step"]] for row in again]
    assert rows[-1]["loss"] < rows[0]["loss"] / 4
