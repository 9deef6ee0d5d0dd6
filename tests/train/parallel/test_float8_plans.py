"""Float8 under plans, on real processes: every recipe trains as one process does, FSDP's gather in float8 changes
nothing, and a run continues from a checkpoint bit for bit."""

import plan_worlds
import pytest

LLAMA = "llama3.1-8b-debug"


def case(plan: str, recipe: str = "tensorwise", **more) -> dict:
    return {"model": LLAMA, "plan": plan, "steps": 2, "options": {"precision": "fp8", "float8": recipe, **more}}


def assert_near(got: dict, wanted: dict, rel: float) -> None:
    for key in ("loss", "norm", "evaluation"):
        assert got[key] == pytest.approx(wanted[key], rel=rel if key != "norm" else 20 * rel)


def test_gathers_in_float8_change_nothing(tmp_path):
    plain, gathered = case("shard=2"), case("shard=2", float8_gather=True)
    again = {**gathered, "then": "shard=2", "folder": str(tmp_path / "checkpoint")}
    plain, gathered, (went_on, resumed) = plan_worlds.run_world(2, [plain, gathered, again])
    assert gathered["loss"][0] == plain["loss"][0]  # the very same float8 weights
    assert_near(gathered, plain, 1e-3)
    assert went_on == resumed


@pytest.mark.slow
def test_float8_under_plans_of_two():
    cases = [case("tp=2"), case("shard=2", "rowwise"), case("tp=2", "blockwise"), case("shard=2", "mxfp8")]
    for one, got in zip(cases, plan_worlds.run_world(2, cases), strict=True):
        assert_near(got, plan_worlds.curve({**one, "plan": ""}), 2e-3)


@pytest.mark.slow
def test_gathers_in_float8_with_tensor_parallelism_and_replicas():
    plans = ("shard=2,tp=2", "replicate=2,shard=2")
    cases = [case(plan, float8_gather=gather) for plan in plans for gather in (False, True)]
    results = plan_worlds.run_world(4, cases)
    for plain, gathered in zip(results[::2], results[1::2], strict=True):
        assert gathered["loss"][0] == plain["loss"][0]
        assert_near(gathered, plain, 1e-3)
