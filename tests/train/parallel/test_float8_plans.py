"""Float8 under plans, on real processes: every recipe trains as one process does, FSDP's gather in float8 changes
nothing, and a run continues from a checkpoint bit for bit."""

import importlib.util
from pathlib import Path

import pytest

from trainwright.train.float8.recipes import RECIPES

spec = importlib.util.spec_from_file_location("worlds", Path(__file__).with_name("worlds.py"))
worlds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worlds)

LLAMA = "llama3.1-8b-debug"


def case(plan: str, recipe: str = "tensorwise", **more) -> dict:
    return {"model": LLAMA, "plan": plan, "steps": 3, "options": {"precision": "fp8", "float8": recipe, **more}}


def assert_near(got: dict, wanted: dict, rel: float) -> None:
    for key in ("loss", "norm", "evaluation"):
        assert got[key] == pytest.approx(wanted[key], rel=rel if key != "norm" else 20 * rel)


def test_float8_under_plans_of_two(tmp_path):
    cases = [case(plan, recipe) for recipe in RECIPES for plan in ("shard=2", "tp=2")]
    gathered = case("shard=2", float8_gather=True)
    again = {**gathered, "then": "shard=2", "folder": str(tmp_path / "checkpoint")}
    *plain, with_gather, (went_on, resumed) = worlds.run_world(2, [*cases, gathered, again], tmp_path)
    for one, got in zip(cases, plain, strict=True):
        assert_near(got, worlds.curve({**one, "plan": ""}), 2e-3)
    assert with_gather["loss"][0] == plain[0]["loss"][0]  # the very same float8 weights
    assert_near(with_gather, plain[0], 1e-3)
    assert went_on == resumed
