"""From spec and recipe to one concrete job: the job goes over the recipe, plans and batches come out whole, and every
value knows its origin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from resolving import loaded, resolution, resolved
from trainwright.errors import UserError
from trainwright.jobs.command import train_options
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.resolved import Training
from trainwright.recipes.load import names, recipe
from trainwright.train.config import TrainConfig, parse_arguments
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.schedule import Schedule


def job(**more: Any) -> dict[str, Any]:
    return {"recipe": "llama3.1-8b", **more}


def training(job: dict[str, Any], ranks: int, instance: str | None) -> Training:
    found = resolved(job, ranks, instance).training
    assert found is not None
    return found


def options(job: dict[str, Any], ranks: int, instance: str | None) -> TrainConfig:
    """What the trainer reads from the command that a submission renders."""
    return parse_arguments(train_options(resolved(job, ranks, instance), Path("code")))


def test_the_open_axis_takes_what_is_left() -> None:
    assert training(job(), 32, "p5.48xlarge").plan == ParallelPlan(shard=32)
    assert training(job(recipe="gpt2-124m"), 8, None).plan == ParallelPlan(replicate=8)
    assert training(job(recipe="llama3.1-70b"), 256, "p5.48xlarge").plan == ParallelPlan(shard=64, tp=4)
    assert training(job(recipe="falcon-40b"), 128, None).plan == ParallelPlan(replicate=8, tp=4, pp=4)
    assert training(job(parallel={"shard": 8}), 32, None).plan == ParallelPlan(replicate=4, shard=8)
    assert training(job(parallel={"tp": 2, "pp": 2}), 8, None).plan == ParallelPlan(shard=2, tp=2, pp=2)


def test_a_plan_that_does_not_fit_names_both_numbers() -> None:
    with pytest.raises(UserError, match=r"needs 8 ranks .* the job has 12"):
        resolved(job(parallel={"tp": 8}), 12, None)


def test_a_batch_in_tokens_is_shared_out_whole() -> None:
    assert training(job(batch={"tokens": "4M"}), 32, None).batch == 480
    assert training(job(batch={"tokens": 1}), 32, None).batch == 32
    assert training(job(batch={"sequences": 64}), 32, None).batch == 64


def test_options_of_the_trainer_are_known_to_every_verb() -> None:
    words = ["--offload-activations", "0.5", "--pipeline-schedule", "zero-bubble"]
    plain = training(job(parallel={"pp": 2}, args=words, recompute="none"), 8, None)
    assert (plain.offload_activations, plain.pipeline_schedule) == (0.5, "zero-bubble")
    for wrong, how in (
        (job(recompute="full", args=words), "recomputed"),
        (job(args=[*words, "--compile"]), "compiled"),
    ):
        with pytest.raises(UserError, match=f"blocks that are {how}"):
            resolved({"recompute": "none", **wrong, "parallel": {"pp": 2}}, 8, None)


@pytest.mark.parametrize("name", names())
def test_the_trainer_understands_every_recipe(name: str) -> None:
    config = options(job(recipe=name), 128 if name != "cpu-ddp" else 4, "p5.48xlarge")
    assert config.warmup < config.steps
    small = f"{name}-debug" if name != "cpu-ddp" else name
    assert options(job(recipe=small), 4, None).data[0].startswith("builtin:")


@pytest.mark.parametrize(
    ("changes", "steps", "warmup"),
    [
        ({}, 60, 10),
        ({"steps": 11}, 11, 10),
        ({"steps": 10}, 10, 1),  # as much of the run as in the recipe: 10 of 60
        ({"args": ["--steps", "5"]}, 5, 0),
        ({"args": ["--steps=30", "--steps", "6"], "steps": 50}, 6, 1),
        ({"steps": 5, "args": ["--warmup", "2"]}, 5, 2),
        ({"steps": 5, "optimizer": {"warmup": 4}}, 5, 4),
    ],
)
def test_a_shortened_run_has_a_shortened_warm_up(changes: dict[str, object], steps: int, warmup: int) -> None:
    """`submit --recipe cpu-ddp -- --steps 5` is the README's quickstart; its 10 warm-up steps made every rank fail."""
    config = options(job(recipe="cpu-ddp", **changes), 2, None)
    assert (config.steps, config.warmup) == (steps, warmup)
    Schedule(config.schedule, config.lr, config.steps, config.warmup)  # refuses a warm-up longer than the run


def test_the_job_goes_over_the_recipe() -> None:
    said = job(
        steps=77, sequence=1024, data="/d", precision="fp8", optimizer={"lr": 1e-5, "warmup": 0},
        checkpoint={"every": "5min", "to": "/fsx/c"}, batch={"sequences": 16}, args=["--compile"],
    )  # fmt: skip
    config = options(said, 8, None)
    assert (config.steps, config.sequence, config.data, config.batch) == (77, 1024, ("/d",), 16)
    assert (config.precision, config.lr, config.warmup, config.compile) == ("fp8", 1e-5, 0, True)
    assert (config.checkpoint_every, config.checkpoint_to) == ("300s", "/fsx/c")


def test_float8_names_the_scales_of_fp8() -> None:
    config = options(job(float8="rowwise"), 8, "p5.48xlarge")
    assert (config.precision, config.float8) == ("fp8", "rowwise")
    config = options(job(args=["--float8", "blockwise"]), 8, "p5.48xlarge")
    assert (config.precision, config.float8) == ("fp8", "blockwise")
    assert options(job(precision="fp8"), 8, "p5.48xlarge").float8 == ""
    assert training(job(float8="mxfp8"), 8, "p6-b200.48xlarge").float8 == "mxfp8"


@pytest.mark.parametrize(
    ("stated", "instance", "place", "words"),
    [
        ({"float8": "mxfp8"}, "p5.48xlarge", "float8", "needs a GPU of compute capability 10.0 or newer, and H100"),
        ({"args": ["--float8", "blockwise"]}, "p6-b200.48xlarge", "args", "needs a GPU of compute capability 9.0, and"),
        ({"float8": "rowwise"}, "p4d.24xlarge", "float8", "has no fp8 units"),
        ({"float8": "rowwise", "precision": "bf16"}, "p5.48xlarge", "float8", "the precision is bf16"),
        ({"args": ["--async-tp"]}, "g6.48xlarge", "args", "over NVLink, which L4 does not have"),
    ],
)
def test_what_a_card_does_not_have_is_refused(stated: dict, instance: str, place: str, words: str) -> None:
    (problem,) = resolution(job(**stated), 8, instance).problems
    assert problem.path == ("jobs", 0, place)
    assert words in problem.what


def test_a_job_with_a_model_needs_no_recipe() -> None:
    config = options({"model": "gpt2-124m-debug", "steps": 5}, 2, None)
    assert (config.model, config.steps, config.parallel) == ("gpt2-124m-debug", 5, "shard=2")
    with pytest.raises(UserError, match="names neither"):
        resolved({})


def test_a_constant_rate_is_a_line_that_does_not_fall() -> None:
    config = options(job(optimizer={"schedule": "constant"}), 8, None)
    assert (config.schedule, config.min_lr) == ("linear", 1.0)


@pytest.mark.parametrize(
    ("stated", "path"),
    [({"workers": 4}, ("workers",)), ({"parallel": {"ep": 2}}, ("parallel", "ep")),
     ({"objective": "dino"}, ("objective",)), ({"args": ["--stepz", "5"]}, ("args",)),
     ({"env": {"RANK": "0"}}, ("env", "RANK")), ({"objective": "dpo", "parallel": {"tp": 2}}, ("parallel", "tp")),
     ({"recipe": "dino-vit-b-16", "parallel": {"pp": 2}}, ("parallel", "pp")),
     ({"recipe": "roberta-large", "args": ["--lora-rank", "8"], "parallel": {"tp": 2}}, ("parallel", "tp"))],
)  # fmt: skip
def test_what_our_trainer_cannot_do_is_a_problem_at_its_place(stated: dict[str, Any], path: tuple[str, ...]) -> None:
    problems = resolution(job(**stated), 8, None).problems
    assert [problem.path for problem in problems] == [("jobs", 0, *path)]


def test_every_value_knows_its_origin() -> None:
    found = resolved(job(steps=7, args=["--lr", "1e-5"]), 8, None)
    origin = {name: str(decision.origin) for name, decision in found.decisions.items()}
    assert origin["steps"].startswith("spec.yaml:")
    assert origin["sequence"] == "recipe llama3.1-8b"
    assert origin["lr"].endswith("the trainer's argument --lr wins")
    assert origin["nodes"] == "default: all nodes of queue train"
    assert origin["warmup"] == "recipe llama3.1-8b: the recipe's 2000 of 500000 steps, shortened with the run"
    assert all(origin.values())


def test_a_batch_that_ranks_cannot_share_is_told_at_submission() -> None:
    with pytest.raises(UserError, match="not whole micro-batches of 3 on 8 data ranks") as caught:
        resolved(job(batch={"sequences": 64, "micro_batch": 3}), 8, None)
    assert caught.value.fix.startswith("take 48 or 72 sequences")
    assert options(job(recipe="gpt2-124m"), 32, None).micro_batch == 16
    assert options(job(recipe="gpt2-124m"), 64, None).micro_batch == 8, "half the share"


def nodes_named(hardware: str) -> int:
    """`4 or more nodes of 8 H100` is 4; `any machine` is 0."""
    found = re.match(r"(\d+)(?: or more)? nodes? of 8 ", hardware)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("name", names())
def test_a_recipe_fits_the_hardware_it_names(name: str) -> None:
    nodes = nodes_named(recipe(name).hardware)
    assert nodes or name == "cpu-ddp"
    for instance in ("p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge"):
        assert options(job(recipe=name), max(1, 8 * nodes), instance).model


TOKENS = re.compile(r"([\d.]+)([BT]) tokens")


@pytest.mark.parametrize("name", [name for name in names() if TOKENS.search(recipe(name).source)])
def test_a_run_sees_the_tokens_its_source_names(name: str) -> None:
    found = recipe(name)
    said = TOKENS.search(found.source)
    assert said is not None
    seen = found.steps * found.global_sequences() * found.sequence
    assert seen == pytest.approx(float(said[1]) * {"B": 1e9, "T": 1e12}[said[2]], rel=0.02)


def test_a_chip_that_only_infers_is_refused() -> None:
    queues = [{"name": "train", "instance": "inf1.24xlarge", "count": 2}]
    jobs = [{"name": "j", "model": "gpt2-124m"}]
    problems = resolve_job(
        loaded({"name": "t", "platform": "parallelcluster", "queues": queues, "jobs": jobs})
    ).problems
    assert "Inferentia cannot train" in [problem.what for problem in problems]
