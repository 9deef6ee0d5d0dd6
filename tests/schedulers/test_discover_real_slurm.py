"""The Slurm of this machine is read into a spec as any other would be."""

from __future__ import annotations

import pytest
from slurm_bench import Bench

from trainwright.platforms.existing.slurm import discover_slurm
from trainwright.spec.model import Spec

pytestmark = pytest.mark.slurm


def test_a_real_slurm(bench: Bench) -> None:
    result = discover_slurm(bench.scheduler.shell)
    assert result.spec["platform"] == "slurm"
    queue = result.spec["queues"][0]
    assert (queue["name"], queue["nodes"], queue["cpus"], queue["gpus"]) == ("train", 4, 4, 2)
    assert result.facts["slurm"].startswith(("22.", "23.", "24.", "25."))
    Spec.model_validate(result.spec)
