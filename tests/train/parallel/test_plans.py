"""Every plan, on real processes, gives the loss and the gradient norm of one process, step by step, and a checkpoint of
any plan loads under any other."""

from pathlib import Path

import plan_worlds
import pytest
from torch.distributed.checkpoint import load

from trainwright.train.models.shape import lookup

LLAMA, GPT, MPT = "llama3.1-8b-debug", "gpt2-124m-debug", "mpt-7b-debug"
MIXTRAL, DEEPSEEK, GPT_OSS = "mixtral-8x7b-debug", "deepseek-v3-debug", "gpt-oss-20b-debug"
OTHERS = (
    "qwen2.5-0.5b-debug", "gemma2-2b-debug", "gemma3-4b-debug", "olmo-2-7b-debug", "phi-3-medium-debug",
    "pythia-1.4b-debug", "qwen3-30b-a3b-debug", "deepseek-v2-lite-debug", "deepseek-v3-debug",
    "gpt-oss-20b-debug", "gpt3-1.7b-debug",
)  # fmt: skip
TWO = ["replicate=2", "shard=2", "tensor=2", "context=2", "pipeline=2", "pipeline=2,virtual=2"]
FOUR = [
    "replicate=2,shard=2",
    "tensor=2,shard=2",
    "pipeline=2,shard=2",
    "tensor=2,pipeline=2",
    "context=2,tensor=2",
    "context=2,replicate=2",
    "context=2,pipeline=2",
    "tensor=2,pipeline=2,virtual=2",
]
EXPERTS_TWO = ["shard=2", "shard=2,ep=2", "replicate=2,ep=2", "tp=2", "cp=2", "pp=2"]
EXPERTS_FOUR = [
    "shard=4,ep=2",
    "shard=4,ep=4",
    "replicate=2,shard=2,ep=2",
    "replicate=2,shard=2,ep=4",
    "replicate=4,ep=2",
    "shard=2,tp=2,ep=2",
    "shard=2,cp=2,ep=2",
    "shard=2,pp=2,ep=2",
    "tp=2,pp=2",
]


def assert_same(got: dict, wanted: dict) -> None:
    assert got["tokens"] == wanted["tokens"]
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
    assert got["norm"] == pytest.approx(wanted["norm"], rel=1e-5)
    assert got["evaluation"] == pytest.approx(wanted["evaluation"], rel=1e-5)


def check(world: int, cases: list[dict]) -> list[dict]:
    alone: dict[str, dict] = {}
    results = plan_worlds.run_world(world, cases)
    for case, got in zip(cases, results, strict=True):
        key = str({**case, "plan": ""})
        alone[key] = alone.get(key) or plan_worlds.curve({**case, "plan": ""})
        assert_same(got, alone[key])
        way = case.get("options", {}).get("context", "gather")
        assert list(got["ways"]) == ([way] if "cp=" in case["plan"] or "context=" in case["plan"] else [])
    return results


@pytest.mark.shows("plans", families=("llama",))
def test_plans_of_two():
    check(2, [{"model": LLAMA, "plan": plan} for plan in TWO])


def test_the_zero_bubble_schedule():
    options = {"pipeline_schedule": "zero-bubble"}
    plans = ("pipeline=2", "pipeline=2,virtual=2")
    cases = [{"model": model, "plan": plan, "steps": 6, "documents": True} for model in (LLAMA, GPT) for plan in plans]
    check(2, [{**case, "options": options} for case in cases])


@pytest.mark.slow
def test_the_zero_bubble_schedule_with_other_plans():
    options = {"pipeline_schedule": "zero-bubble"}
    cases = [{"model": LLAMA, "plan": plan, "steps": 3} for plan in ("pp=2,shard=2", "pp=2,tp=2", "pp=2,cp=2", "pp=4")]
    cases += [{"model": MIXTRAL, "plan": "shard=2,pp=2,ep=2", "steps": 3}]
    check(4, [{**case, "options": options} for case in cases])


@pytest.mark.slow
def test_activations_in_host_memory_under_plans():
    """Sharded weights that are gathered for a layer, tensors that are distributed, stages that hold several
    micro-batches, weight gradients that are put off, and experts."""
    plain = {"model": LLAMA, "steps": 4, "documents": True}
    offload = {"offload_activations": 1.0}
    cases = [{**plain, "plan": plan, "options": offload} for plan in ("shard=2", "tp=2", "pp=2,virtual=2")]
    cases += [{**plain, "plan": "shard=2", "options": {**offload, "recompute": "full"}}]
    cases += [{**plain, "plan": "pp=2", "options": {**offload, "pipeline_schedule": "zero-bubble"}}]
    cases += [{"model": MIXTRAL, "plan": "shard=2,ep=2", "steps": 3, "options": offload}]
    without = [{**case, "options": {k: v for k, v in case["options"].items() if k not in offload}} for case in cases]
    results = plan_worlds.run_world(2, [*cases, *without])
    for got, wanted in zip(results[: len(cases)], results[len(cases) :], strict=True):
        assert got == wanted, "bit for bit"


def test_keys_travel_around_a_ring():
    """Of two ranks, whose neighbours on both sides are the same; kept or recomputed."""
    ring = {"model": LLAMA, "plan": "cp=2", "steps": 4, "documents": True}
    cases = [{**ring, "options": {"context": "ring", "recompute": mode}} for mode in ("none", "selective")]
    kept, selective, _ = check(2, [*cases, {**ring, "options": {"context": "all-to-all"}}])
    assert selective["ways"] == kept["ways"], "what went around is not sent again"


@pytest.mark.slow
def test_keys_travel_around_a_ring_under_other_plans():
    plans = ("cp=4", "cp=2,tp=2", "cp=2,pp=2", "cp=2,shard=2", "cp=2,replicate=2")
    cases = [{"model": LLAMA, "plan": plan, "steps": 3, "documents": True} for plan in plans]
    cases += [{"model": model, "plan": "cp=4", "steps": 2, "documents": True} for model in (MPT, GPT_OSS, DEEPSEEK)]
    cases += [{"model": "gemma2-2b-debug", "plan": "cp=2,tp=2", "steps": 2, "documents": True}]
    check(4, [{**case, "options": {"context": "ring"}} for case in cases])


@pytest.mark.shows("plans", families=("qwen3",))
def test_plans_of_two_with_norms_on_queries_and_keys():
    check(2, [{"model": "qwen3-8b-debug", "plan": plan} for plan in ("tp=2", "cp=2", "pp=2")])


@pytest.mark.shows("plans", families=("mixtral",))
def test_plans_of_two_with_experts():
    check(2, [{"model": MIXTRAL, "plan": plan, "steps": 6} for plan in EXPERTS_TWO])


@pytest.mark.slow
@pytest.mark.shows("plans")
@pytest.mark.parametrize(
    ("model", "plans"),
    [
        (MIXTRAL, EXPERTS_FOUR),
        (DEEPSEEK, ["shard=2,tp=2,ep=2"]),
        pytest.param(GPT_OSS, ["shard=2,tp=2,ep=2", "shard=4,ep=2"], marks=pytest.mark.long),
    ],
)
def test_plans_of_four_with_experts(model, plans):
    check(4, [{"model": model, "plan": plan, "documents": True, "steps": 5} for plan in plans])


@pytest.mark.slow
@pytest.mark.shows("plans", families=[lookup(model).family for model in OTHERS])
@pytest.mark.parametrize("models", [OTHERS[::2], OTHERS[1::2]], ids=["one half", "other half"])
def test_plans_of_two_for_every_other_family(models):
    plans = ("shard=2", "tp=2", "cp=2", "pp=2")
    cases = [{"model": model, "plan": plan, "steps": 4} for model in models for plan in plans]
    cases += [{"model": model, "plan": "shard=2,ep=2", "steps": 4} for model in models if lookup(model).experts]
    check(2, cases)


@pytest.mark.slow
@pytest.mark.long
def test_plans_of_four():
    check(4, [{"model": LLAMA, "plan": plan} for plan in FOUR])


@pytest.mark.slow
@pytest.mark.shows("plans")
@pytest.mark.parametrize("model", [GPT, pytest.param(MPT, marks=pytest.mark.long)])
def test_tied_and_documents_under_two(model):
    check(2, [{"model": model, "plan": plan, "documents": True} for plan in TWO])


@pytest.mark.slow
@pytest.mark.shows("plans")
@pytest.mark.parametrize(
    "model",
    [pytest.param(each, marks=pytest.mark.long) for each in (GPT, "falcon-40b-debug", "mistral-7b-v0.1-debug")],
)
def test_tied_and_documents_under_four(model):
    check(4, [{"model": model, "plan": plan, "documents": True} for plan in FOUR])


def check_moves(world: int, moves: list[tuple[str, str]], model: str, folder: Path) -> None:
    """A checkpoint loads under another plan in the same world, and in a single process."""
    cases = [
        {"model": model, "plan": plan, "then": then, "folder": str(folder / f"checkpoint-{number}")}
        for number, (plan, then) in enumerate(moves)
    ]
    for case, (stayed, moved) in zip(cases, plan_worlds.run_world(world, cases), strict=True):
        assert_same(moved, stayed)
        alone = plan_worlds.build(case, "", seed=9)
        state = alone.state_dict()
        load(state, checkpoint_id=case["folder"], no_dist=True)
        alone.load_state_dict(state)
        assert_same(plan_worlds.steps(alone, case, range(2, 5)), stayed)


def test_checkpoints_move_between_plans_of_two(tmp_path):
    check_moves(2, [("shard=2", "tensor=2"), ("pipeline=2", "replicate=2")], GPT, tmp_path)


@pytest.mark.slow
def test_checkpoints_move_between_plans_of_four(tmp_path):
    moves = [("tensor=2,pipeline=2", "replicate=2,shard=2"), ("tensor=2,shard=2", "pipeline=2,context=2")]
    check_moves(4, moves, GPT, tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_options_under_plans():
    cases = [
        {"model": LLAMA, "plan": "shard=2", "options": {"offload_optimizer": True}},
        {"model": LLAMA, "plan": "shard=2", "options": {"optimizer": "muon"}, "steps": 5},
        {"model": LLAMA, "plan": "tp=2", "options": {"optimizer": "muon"}, "steps": 5},
        {"model": MIXTRAL, "plan": "shard=2,ep=2", "options": {"optimizer": "muon"}, "steps": 5},
        {"model": LLAMA, "plan": "pp=2", "options": {"optimizer": "adamw8bit"}, "steps": 5},
        *(
            {"model": model, "plan": "cp=2", "options": {"context": "all-to-all"}, "steps": 5, "documents": True}
            for model in (LLAMA, MPT, GPT_OSS, DEEPSEEK)
        ),
        {"model": LLAMA, "plan": "tensor=2", "options": {"recompute": "full"}},
        {"model": LLAMA, "plan": "pipeline=2", "options": {"recompute": "selective"}},
        {"model": LLAMA, "plan": "context=2", "options": {"recompute": "full"}},
    ]
    check(2, cases)


@pytest.mark.slow
@pytest.mark.long
def test_bf16_under_plans_follows_fp32():
    plans = ["shard=2", "tensor=2", "pipeline=2", "context=2"]
    cases = [{"model": LLAMA, "plan": plan, "options": {"precision": "bf16"}} for plan in plans]
    wanted = plan_worlds.curve({"model": LLAMA, "plan": ""})
    for got in plan_worlds.run_world(2, cases):
        assert got["loss"] == pytest.approx(wanted["loss"], rel=2e-3)
        assert got["norm"] == pytest.approx(wanted["norm"], rel=5e-2)
