"""LoRA, QLoRA and the optimizers of our trainer: against what was measured on our H200, and through a job's recipe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.errors import UserError
from trainwright.jobs.resolve import resolve_job
from trainwright.predict import PredictRequest, predict
from trainwright.predict.adapters import trained_parameters
from trainwright.predict.job import predict_job
from trainwright.spec.load import load_text

ONE_H200 = PredictRequest(
    "llama3-8b", "p5en.48xlarge", 1, "replicate=1", gpus_per_node=1, sequence=4096, sequences=2, micro_batch=2,
    recompute="none", adapter_rank=16,
)  # fmt: skip
SPEC = """
name: tune
platform: parallelcluster
region: us-east-2
queues: [{name: train, instance: p4d.24xlarge, count: 1}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 250}}]
jobs: [{name: tune, recipe: RECIPE, ARGS}]
"""


@pytest.mark.shows("predict", families=("lora",))
@pytest.mark.parametrize(("trainer", "precision", "tokens_per_s", "gib"), [
    ("trainwright", "bf16", 16_000, 54), ("trainwright", "fp8", 20_200, None), ("torch", "bf16", 10_800, 80),
])  # fmt: skip
def test_lora_of_our_own_h200(trainer, precision, tokens_per_s, gib):
    """docs/train/objectives.md: Llama 3 8B, rank 16; `torch` is HF PEFT in eager mode."""
    said = predict(replace(ONE_H200, trainer=trainer, precision=precision))
    assert said.tokens_per_s == pytest.approx(tokens_per_s, rel=0.05)
    assert gib is None or said.memory_gib == pytest.approx(gib, rel=0.11)


def test_the_frozen_weights_and_the_adapters_are_all_that_is_kept():
    said = predict(ONE_H200).setup
    assert said is not None
    assert trained_parameters(said) == 41_943_040  # as peft counts them for Llama 3 8B, rank 16
    in_16 = predict(ONE_H200).memory_parts_gib["state"] * 2**30
    assert in_16 == pytest.approx(8.03e9 * 2 + 41.9e6 * 12, rel=0.005)
    peft = replace(ONE_H200, trainer="torch")
    codes = predict(replace(peft, base_bits=4))
    assert codes.memory_parts_gib["state"] * 2**30 == pytest.approx(8.03e9 * 0.5625 + 41.9e6 * 16, rel=0.005)
    assert codes.step_time_s > predict(peft).step_time_s  # the codes are expanded for every product


def resolved(recipe: str, args: str = "args: []"):
    return resolve_job(load_text(SPEC.replace("RECIPE", recipe).replace("ARGS", args), "spec.yaml")).require()


def test_a_recipe_with_adapters_is_predicted_with_them():
    lora, sft = predict_job(resolved("trl-llama3.1-8b-lora")), predict_job(resolved("trl-llama3.1-8b-sft"))
    assert lora.setup is not None
    assert lora.setup.adapter_rank == 16
    assert lora.fits == "yes"  # on 40 GB, where all weights with their state do not fit without sharding
    assert lora.needs.checkpoint_gb < 1 < sft.needs.checkpoint_gb
    assert predict_job(resolved("llama3-8b-lora")).setup.adapter_rank == 16


def test_a_job_of_our_trainer_is_refused_as_the_trainer_would():
    with pytest.raises(UserError, match="--lora-rank is 100000, more than any width of the model: at most 14336"):
        predict_job(resolved("llama3-8b-lora", 'args: [--lora-rank, "100000"]'))
    with pytest.raises(UserError, match="base-bits"):
        resolved("llama3-8b-lora", "args: [--base-bits, '4']")


def test_arguments_of_the_job_win_over_the_recipe():
    job = resolved("trl-llama3.1-8b-lora", 'args: [--lora-rank, "64", --base-bits=4]')
    assert (job.training.adapters.rank, job.training.adapters.base_bits) == (64, 4)
    setup = predict_job(job).setup  # TRL has QLoRA; our own trainer has not
    assert (setup.adapter_rank, setup.base_bits, setup.profile.name) == (64, 4, "torch")
    assert predict_job(resolved("llama3-8b", "args: [--optimizer, muon]")).setup.optimizer == "muon"


@pytest.mark.parametrize(("optimizer", "gib", "update_s"), [("adamw8bit", 7.0, 0.108), ("muon", None, 0.168)])
def test_other_optimizers_of_our_own_h200(optimizer, gib, update_s):
    """docs/train/parallelism.md: the 1B shape, 13.8 GiB of state with AdamW."""
    request = replace(ONE_H200, model="llama3.2-1b", adapter_rank=0)
    usual, said = predict(request), predict(replace(request, optimizer=optimizer))
    assert usual.memory_parts_gib["state"] == pytest.approx(13.8, rel=0.01)
    assert said.parts["optimizer"] == pytest.approx(update_s, rel=0.05)
    expected = gib or 13.8 - 4 * 0.973e9 / 2**30  # no second moment of the matrices of the blocks
    assert said.memory_parts_gib["state"] == pytest.approx(expected, rel=0.01)


def test_a_zero_stage_that_is_an_option_shares_the_state():
    first, third = (predict_job(resolved(f"deepspeed-llama3.1-8b-zero{stage}")) for stage in (1, 3))
    assert (first.setup.zero, third.setup.zero) == (1, 3)
    assert third.memory_parts_gib["state"] < first.memory_parts_gib["state"] < 8.03e9 * 16 / 2**30
