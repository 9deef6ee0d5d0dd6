"""One real local Slurm for the tests of this folder, in a home of its own, removed whatever happens; a real S3."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_bench import Bench

from s3_server import s3, s3_endpoint
from trainwright.platforms.local import life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.local.platform import scheduler_on

__all__ = ["s3", "s3_endpoint"]


@pytest.fixture(scope="module")
def module_home() -> Iterator[Path]:
    # Short, since unix sockets lie below it.
    folder = Path(tempfile.mkdtemp(prefix="tw"))
    before = os.environ.get("TRAINWRIGHT_HOME")
    os.environ["TRAINWRIGHT_HOME"] = str(folder)
    yield folder
    for name in state.names():
        life.down(name, force=True)
    os.environ.pop("TRAINWRIGHT_HOME")
    if before is not None:
        os.environ["TRAINWRIGHT_HOME"] = before
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bench(module_home: Path) -> Bench:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    cluster = LocalCluster("bench", (LocalQueue("train", 4, cpus=4, gpus=2),), settings=(("SlurmdTimeout", "3"),))
    record = life.up(cluster)
    queues = [{"name": "train", "nodes": 4, "cpus": 4, "gpus": 2}]
    return Bench(record, scheduler_on(record), {"name": "bench", "platform": "local", "queues": queues})
