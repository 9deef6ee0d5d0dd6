"""Every plan, on real processes, gives the loss and the gradient norm of one process, step by step."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("worlds", Path(__file__).with_name("worlds.py"))
worlds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worlds)

LLAMA, GPT, MPT = "llama3.1-8b-debug", "gpt2-124m-debug", "mpt-7b-debug"
TWO = ["replicate=2", "shard=2", "tensor=2", "context=2", "pipeline=2", "pipeline=2,virtual=2"]
FOUR = [
    "replicate=2,shard=2",
    "tensor=2,shard=2",
    "pipeline=2,shard=2",
    "tensor=2,pipeline=2",
    "context=2,tensor=2",
]


def assert_same(got: dict, wanted: dict) -> None:
    assert got["tokens"] == wanted["tokens"]
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
    assert got["norm"] == pytest.approx(wanted["norm"], rel=1e-5)
    assert got["evaluation"] == pytest.approx(wanted["evaluation"], rel=1e-5)


def check(world: int, cases: list[dict], folder: Path) -> None:
    alone: dict[str, dict] = {}
    for case, got in zip(cases, worlds.run_world(world, cases, folder), strict=True):
        key = str({**case, "plan": ""})
        alone[key] = alone.get(key) or worlds.curve({**case, "plan": ""})
        assert_same(got, alone[key])


def test_plans_of_two(tmp_path):
    check(2, [{"model": LLAMA, "plan": plan} for plan in TWO], tmp_path)


def test_plans_of_four(tmp_path):
    check(4, [{"model": LLAMA, "plan": plan} for plan in FOUR], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", [GPT, MPT])
def test_tied_and_documents_under_two(model, tmp_path):
    check(2, [{"model": model, "plan": plan, "documents": True} for plan in TWO], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", [GPT, "falcon-40b-debug", "mistral-7b-v0.1-debug"])
def test_tied_and_documents_under_four(model, tmp_path):
    check(4, [{"model": model, "plan": plan, "documents": True} for plan in FOUR], tmp_path)
