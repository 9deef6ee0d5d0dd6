"""From a job to the trainer's options: the job goes over the recipe, plans and batches come out whole."""

from __future__ import annotations

import re

import pytest

from trainwright.errors import UserError
from trainwright.recipes.arguments import plan_of, samples_of, train_options
from trainwright.recipes.load import names, recipe
from trainwright.spec.model import Job
from trainwright.train.config import parse_arguments
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.schedule import Schedule


def job(**more: object) -> Job:
    return Job.model_validate({"name": "j", "recipe": "llama3.1-8b", **more})


def test_the_open_axis_takes_what_is_left() -> None:
    assert plan_of(job(), 32, "p5.48xlarge") == ParallelPlan(shard=32)
    assert plan_of(job(recipe="gpt2-124m"), 8, None) == ParallelPlan(replicate=8)
    assert plan_of(job(recipe="llama3.1-70b"), 256, "p5.48xlarge") == ParallelPlan(shard=64, tp=4)
    assert plan_of(job(recipe="falcon-40b"), 128, None) == ParallelPlan(replicate=8, tp=4, pp=4)
    assert plan_of(job(parallel={"shard": 8}), 32, None) == ParallelPlan(replicate=4, shard=8)
    assert plan_of(job(parallel={"tp": 2, "pp": 2}), 8, None) == ParallelPlan(shard=2, tp=2, pp=2)


def test_a_plan_that_does_not_fit_names_both_numbers() -> None:
    with pytest.raises(UserError, match=r"needs 8 ranks .* the job has 12"):
        plan_of(job(parallel={"tp": 8}), 12, None)


def test_a_batch_in_tokens_is_shared_out_whole() -> None:
    plan = ParallelPlan(shard=32)
    assert samples_of(job(batch={"tokens": "4M"}).batch, 8192, plan) == 480  # type: ignore[arg-type]
    assert samples_of(job(batch={"tokens": 1}).batch, 8192, plan) == 32  # type: ignore[arg-type]
    assert samples_of(job(batch={"sequences": 64}).batch, 8192, plan) == 64  # type: ignore[arg-type]


@pytest.mark.parametrize("name", names())
def test_the_trainer_understands_every_recipe(name: str) -> None:
    config = parse_arguments(train_options(job(recipe=name), 128 if name != "cpu-ddp" else 4, "p5.48xlarge"))
    assert config.warmup < config.steps
    small = f"{name}-debug" if name != "cpu-ddp" else name
    assert parse_arguments(train_options(job(recipe=small), 4, None)).data == ("builtin:stdlib",)


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
    config = parse_arguments(train_options(job(recipe="cpu-ddp", **changes), 2, None))
    assert (config.steps, config.warmup) == (steps, warmup)
    Schedule(config.schedule, config.lr, config.steps, config.warmup)  # refuses a warm-up longer than the run


def test_the_job_goes_over_the_recipe() -> None:
    said = job(
        steps=77, sequence=1024, data="/d", precision="fp8", optimizer={"lr": 1e-5, "warmup": 0},
        checkpoint={"every": "5min", "to": "/fsx/c"}, batch={"sequences": 16}, args=["--compile"],
    )  # fmt: skip
    config = parse_arguments(train_options(said, 8, None))
    assert (config.steps, config.sequence, config.data, config.batch) == (77, 1024, ("/d",), 16)
    assert (config.precision, config.lr, config.warmup, config.compile) == ("fp8", 1e-5, 0, True)
    assert (config.checkpoint_every, config.checkpoint_to) == ("300s", "/fsx/c")


def test_a_job_with_a_model_needs_no_recipe() -> None:
    config = parse_arguments(train_options(Job(name="j", model="gpt2-124m-debug", steps=5), 2, None))
    assert (config.model, config.steps, config.parallel) == ("gpt2-124m-debug", 5, "shard=2")
    with pytest.raises(UserError, match="names neither"):
        train_options(Job(name="j"), 1, None)


def test_a_constant_rate_is_a_line_that_does_not_fall() -> None:
    config = parse_arguments(train_options(job(optimizer={"schedule": "constant"}), 8, None))
    assert (config.schedule, config.min_lr) == ("linear", 1.0)


def test_what_our_trainer_cannot_do_is_refused_by_name() -> None:
    for said, where in (({"workers": 4}, "job j: workers"), ({"parallel": {"ep": 2}}, "job j: parallel.ep")):
        with pytest.raises(UserError) as caught:
            train_options(job(**said), 8, None)
        assert caught.value.where == where


def test_a_batch_that_ranks_cannot_share_is_told_at_submission() -> None:
    with pytest.raises(UserError, match="not whole micro-batches of 3 on 8 data ranks") as caught:
        train_options(job(batch={"sequences": 64, "micro_batch": 3}), 8, None)
    assert caught.value.fix.startswith("take 48 or 72 samples")
    assert parse_arguments(train_options(job(recipe="gpt2-124m"), 32, None)).micro_batch == 16
    assert parse_arguments(train_options(job(recipe="gpt2-124m"), 64, None)).micro_batch == 8, "half the share"


def nodes_named(hardware: str) -> int:
    """`4 or more nodes of 8 H100` is 4; `any machine` is 0."""
    found = re.match(r"(\d+)(?: or more)? nodes? of 8 ", hardware)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("name", names())
def test_a_recipe_fits_the_hardware_it_names(name: str) -> None:
    nodes = nodes_named(recipe(name).hardware)
    assert nodes or name == "cpu-ddp"
    for instance in ("p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge"):
        assert parse_arguments(train_options(job(recipe=name), max(1, 8 * nodes), instance)).model


TOKENS = re.compile(r"([\d.]+)([BT]) tokens")


@pytest.mark.parametrize("name", [name for name in names() if TOKENS.search(recipe(name).source)])
def test_a_run_sees_the_tokens_its_source_names(name: str) -> None:
    found = recipe(name)
    said = TOKENS.search(found.source)
    assert said is not None
    seen = found.steps * found.global_sequences() * found.sequence
    assert seen == pytest.approx(float(said[1]) * {"B": 1e9, "T": 1e12}[said[2]], rel=0.02)
