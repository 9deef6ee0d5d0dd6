"""The cores of a node are shared out among its ranks, and each rank is bound to its own, on a Slurm that can bind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from trainwright.platforms.local import daemons, life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.local.platform import scheduler_on
from trainwright.schedulers.base import Launch

pytestmark = pytest.mark.slurm
SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"


def test_each_rank_has_cores_of_its_own(module_home: Path, tmp_path: Path) -> None:
    """Whether the spec counts the node's CPUs, or the job does when it starts."""
    cores = len(os.sched_getaffinity(0))
    if missing_programs() or cores < 2:
        pytest.skip("needs Slurm and two processors")
    queue = LocalQueue("train", 1, cpus=cores, gpus=2)
    scheduler = scheduler_on(life.up(LocalCluster("bound", (queue,), settings=(("TaskPlugin", "task/affinity"),))))
    for stated in (cores // 2, 0):
        run = tmp_path / f"show-{stated}"
        run.mkdir()
        launch = Launch(
            "show", (sys.executable, "-c", SHOW), run, processes=2, cpus=stated, gpus=2, queue="train", exclusive=True
        )
        script = scheduler.render(launch)
        (run / script.filename).write_text(script.text)
        job = scheduler.submit(launch, script)
        daemons.wait_for(lambda: scheduler.state(job).over, "the job ends", run / "job.log")  # noqa: B023
        assert scheduler.state(job).state == "completed", (run / "job.log").read_text()
        given = [json.loads((run / f"logs/rank-{rank}.log").read_text()) for rank in range(2)]
        assert [len(each) for each in given] == [cores // 2] * 2
        assert not set(given[0]) & set(given[1]), "two ranks share a core"
    life.down("bound")
