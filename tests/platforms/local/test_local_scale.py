"""Sixty-four nodes on one machine: they start in time and run one job of sixty-four ranks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from counting_jobs import order, submit_counting
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.platform import scheduler_on


@pytest.mark.slurm
@pytest.mark.slow
def test_sixty_four_nodes_start_and_run_a_job(slurm: Path) -> None:
    began = time.monotonic()
    record = life.up(LocalCluster("many", (LocalQueue("train", 64),)))
    up = time.monotonic() - began
    assert up < 60
    spec = {"name": "many", "platform": "local", "queues": [{"name": "train", "nodes": 64}]}
    scheduler = scheduler_on(record)
    run = submit_counting(order(spec, {"steps": 5, "nodes": 64}, scheduler), "--steps=5")
    deadline = time.monotonic() + 180
    while not (status := scheduler.state(run.identity)).over:
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    assert status.state == "completed", (run.folder / "job.log").read_text()
    steps = [json.loads(line)["step"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5]
    hosts = {path.read_text().split(" on ")[1].split()[0] for path in (run.folder / "logs").glob("rank-*.log")}
    assert len(hosts) == 64
    print(f"64 nodes up in {up:.1f} s; 64 ranks done after {time.monotonic() - began:.1f} s")
