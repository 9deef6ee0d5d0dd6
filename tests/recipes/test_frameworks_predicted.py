"""Recipes of frameworks that the predictor models fit the hardware they name, and published figures are near."""

from __future__ import annotations

import pytest
from test_frameworks import written_for

from resolving import loaded
from trainwright.errors import UserError
from trainwright.jobs.frameworks import known_framework
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.resolved import ResolvedJob
from trainwright.predict.job import predict_job
from trainwright.predict.profiles import profiles
from trainwright.recipes.framework import framework, frameworks
from trainwright.recipes.load import foreign_names

# Adapters are predicted as if all weights were trained; and a plan whose experts are spread over context ranks too.
UNPREDICTED = ("lora", "distillation", "grpo", "nemo2-b200-mixtral-8x22b", "deepspeed-llama3.1-8b-zero1")
PUBLISHED = {"torchtitan-llama3.1-8b": 6_785, "torchtitan-llama3.1-8b-float8": 7_865}  # tokens/s per GPU, 4 x p5


def job_of(name: str) -> ResolvedJob:
    return resolve_job(loaded(written_for(name)), "j").require()


def test_profiles_are_the_predictors() -> None:
    named = {framework(name).profile for name in frameworks()} - {None}
    assert named <= set(profiles())


def test_what_is_modelled_fits_its_hardware() -> None:
    short = []
    for name in foreign_names():
        job = job_of(name)
        known = known_framework(job.recipe)
        instance = job.placement.queue.instance
        modelled = known is not None and known.profile and job.training is not None and job.training.shape is not None
        if not modelled or not instance or any(word in name for word in UNPREDICTED):
            continue
        prediction = predict_job(job)
        if prediction.to_dict()["fits"] == "no":
            short.append((name, round(prediction.to_dict()["memory_gib"])))
    assert short == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_are_near(name: str) -> None:
    job = job_of(name)
    assert predict_job(job).to_dict()["tokens_per_s"] / job.ranks == pytest.approx(PUBLISHED[name], rel=0.15)


def test_what_is_not_modelled_says_so() -> None:
    with pytest.raises(UserError, match="verl is not modelled"):
        predict_job(job_of("verl-qwen3-8b-grpo"))
    # Only the student's steps, and only the update of a policy, were counted.
    with pytest.raises(UserError, match=r"the teacher of a distillation .* is not modelled"):
        predict_job(job_of("hf-distillation"))
    with pytest.raises(UserError, match=r"the generation of answers \(GRPO\) is not modelled"):
        predict_job(job_of("trl-grpo-qwen2.5-7b"))
