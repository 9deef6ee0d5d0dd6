"""Every value that a job or a recipe can state reaches its framework, or is a finding: for each framework and program,
one recipe is rendered with a value and without it, and the two differ, or `check` refuses the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_frameworks import written_for

from resolving import loaded
from trainwright.jobs.frameworks import framework_launch
from trainwright.jobs.resolve import resolve_job
from trainwright.recipes.load import foreign_names, recipe

FOLDER = Path("/fsx/runs/r-1")
# A value by its path in the job, two of them where one may be what the recipe has anyway.
OF_A_JOB: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("data",): ("/fsx/data/mine",),
    ("steps",): (7_777,),
    ("sequence",): (1_792,),
    ("precision",): ("fp8", "fp32", "bf16"),
    ("recompute",): ("selective", "full"),
    ("workers",): (13,),
    ("objective",): ("mlm",),
    ("batch", "sequences"): (9_216,),
    ("batch", "micro_batch"): (3,),
    ("parallel", "tp"): (2,), ("parallel", "pp"): (2,), ("parallel", "cp"): (2,), ("parallel", "ep"): (2,),
    ("optimizer", "lr"): (1.2345e-4,),
    ("optimizer", "warmup"): (17,),
    ("optimizer", "decay"): (23,),
    ("optimizer", "schedule"): ("cosine", "linear", "wsd", "constant"),
    ("checkpoint", "every"): ("11min",),
    ("checkpoint", "steps"): (19,),
    ("checkpoint", "keep"): (29,),
    ("checkpoint", "to"): ("/fsx/mine",),
}  # fmt: skip
OF_A_RECIPE: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("optimizer", "betas"): ([0.87, 0.983],),
    ("optimizer", "final"): (0.0375,),
    ("optimizer", "weight_decay"): (0.0875,),
    ("optimizer", "clip"): (0.875,),
}


def programs() -> list[str]:
    """One recipe for each program of each framework."""
    first: dict[tuple[Any, ...], str] = {}
    for name in foreign_names():
        first.setdefault((recipe(name).trainer.framework, recipe(name).trainer.entry), name)
    return sorted(first.values())


def rendered(spec: dict[str, Any]) -> tuple[Any, ...] | None:
    """What the ranks run; None where something is refused."""
    resolution = resolve_job(loaded(spec), "j")
    if resolution.job is None:
        return None
    launch = framework_launch(resolution.job, FOLDER, FOLDER / "code")
    return launch.command, launch.files, [(variable.name, variable.value) for variable in launch.environment]


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {path[0]: {path[1]: value} if len(path) > 1 else value}


@pytest.mark.parametrize("name", programs())
def test_what_a_job_states_reaches_the_framework_or_is_refused(name):
    spec = written_for(name)
    usual = rendered(spec)
    assert usual is not None
    lost = []
    for path, values in OF_A_JOB.items():
        seen = [rendered({**spec, "jobs": [{**spec["jobs"][0], **nested(path, value)}]}) for value in values]
        if len(values) == 1 and seen[0] == usual:
            lost.append(path)
        told = [one for one in seen if one is not None]
        if len(values) > 1 and any(told.count(one) > 1 for one in told):
            lost.append(path)
    assert lost == []


@pytest.mark.parametrize("name", programs())
def test_what_a_recipe_states_reaches_the_framework_or_is_refused(name, tmp_path):
    own = recipe(name).model_dump(exclude_unset=True, mode="json")
    spec = written_for(name)
    path = tmp_path / "mine.yaml"

    def with_values(**more: Any) -> tuple[Any, ...] | None:
        optimizer = {"optimizer": {**own.get("optimizer", {"lr": 1e-4}), **more}} if more else {}
        path.write_text(yaml.safe_dump({**own, **optimizer}))
        return rendered({**spec, "jobs": [{"name": "j", "recipe": str(path)}]})

    usual = with_values()
    assert usual is not None
    assert [key for (_, key), (value,) in OF_A_RECIPE.items() if with_values(**{key: value}) == usual] == []
