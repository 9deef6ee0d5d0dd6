"""What a framework's own program refuses at its start, or does with the wrong weights: read in the rendered job, and
with the programs of ours that start it run for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resolving import resolved
from trainwright.jobs.frameworks import FrameworkLaunch, framework_launch

FOLDER = Path("/fsx/runs/r-1")


def launched(recipe: str, nodes: int, instance: str = "p5.48xlarge", **job: Any) -> FrameworkLaunch:
    return framework_launch(resolved({"recipe": recipe, **job}, nodes * 8, instance), FOLDER, FOLDER / "code")


@pytest.mark.parametrize(
    ("recipe", "nodes", "size"),
    [("nemo2-b200-llama3-70b-fsdp", 8, None), ("nemo2-b200-mixtral-8x7b", 8, None), ("nemo2-b200-llama3-70b", 8, 5)],
)
def test_nemo_2_runs_without_the_virtual_stages_of_its_recipes(recipe: str, nodes: int, size: int | None) -> None:
    file = json.loads(launched(recipe, nodes, "p6-b200.48xlarge").files["nemo2.json"])
    assert file["set"]["trainer"]["strategy"]["virtual_pipeline_model_parallel_size"] == size
