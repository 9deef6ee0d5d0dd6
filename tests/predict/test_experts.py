"""Mixtures of experts: their shapes, FLOPs, memory under expert parallelism, exchange and imbalance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.catalog.models import active_parameter_count, model, parameter_count
from trainwright.predict import PredictRequest, predict
from trainwright.predict.constants import constants
from trainwright.predict.hardware import cluster
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import memory
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import step_time
from trainwright.train.flops import flops_per_token
from trainwright.train.parallel.plan import ParallelPlan

C = constants()


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("deepseek-v3", 671, 37.5), ("kimi-k2", 1026, 32.9), ("qwen3-30b-a3b", 30.5, 3.35), ("qwen3-235b-a22b", 235, 22.2),
     ("gpt-oss-120b", 116.8, 5.7), ("llama4-maverick", 400, 17.2), ("llama4-scout", 108, 17.2),
     ("mixtral-8x7b", 46.7, 12.9), ("grok-1", 316, 84.6)],
)  # fmt: skip
def test_shapes_have_the_parameters_that_were_published(name, billions, active):
    assert parameter_count(model(name)) / 1e9 == pytest.approx(billions, rel=0.01)
    assert active_parameter_count(model(name)) / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("name", "tflops", "tokens_per_s"),
    [("deepseek-v3", 1276, 4912), ("gpt-oss-120b", 1077, 33024), ("qwen3-30b-a3b", 1029, 44544),
     ("qwen3-235b-a22b", 1333, 9008), ("kimi-k2", 1099, 5372)],
)  # fmt: skip
def test_flops_per_token_are_those_of_megatron_bridge(name, tflops, tokens_per_s):
    """Its tables print TFLOP/s and tokens/s of the same run, at 4096 tokens; causal attention counts half."""
    assert flops_per_token(model(name), 4096) == pytest.approx(tflops * 1e12 / tokens_per_s, rel=0.01)


def job(ep: int, **changes) -> Setup:
    plan = ParallelPlan(shard=16, ep=ep)
    base = Setup(
        model("mixtral-8x7b"), cluster("p5.48xlarge", 2), plan, Batch(4096, 1, 4), profile("megatron"), zero=1,
        recompute="full", balanced=True,
    )  # fmt: skip
    return replace(base, **changes)


def test_expert_parallelism_reduces_memory_and_costs_an_exchange():
    used = [memory(job(ep), C).state for ep in (1, 2, 8)]
    assert used[0] > used[1] > used[2]
    assert step_time(job(1), C).parts["expert parallel"] == 0
    assert step_time(job(8), C).parts["expert parallel"] > 0


def test_an_exchange_across_nodes_takes_longer_than_inside_one():
    inside, across = (step_time(job(ep), C).parts["expert parallel"] for ep in (8, 16))
    assert across > 1.5 * inside


def test_uneven_experts_are_slower_than_balanced_ones():
    assert step_time(job(8, balanced=False), C).total > step_time(job(8), C).total


def test_small_experts_use_the_gpu_less_well_than_one_large_mlp():
    """The same active parameters: products of a few rows per expert fill fewer tiles."""
    sparse = job(8, shape=model("qwen3-30b-a3b"))
    wide = replace(sparse.shape, ffn=768 * 8, experts=0, experts_per_token=0)
    dense = replace(sparse, shape=wide, plan=replace(sparse.plan, ep=1))
    assert step_time(sparse, C).parts["products"] > step_time(dense, C).parts["products"]


def test_a_mixture_is_predicted_from_flags_with_a_wide_interval():
    plan = "shard=32,pp=8,ep=32"
    request = PredictRequest("deepseek-v3", "p6-b200.48xlarge", 32, plan, batch_tokens=2**23, trainer="megatron")
    p = predict(request)
    assert "a mixture of experts" in p.outside_evidence
    assert p.high / p.low > 1.5
    assert 0.05 < p.mfu < 0.5


def test_a_plan_with_more_expert_ranks_than_experts_is_refused():
    with pytest.raises(Exception, match="experts cannot be split"):
        lay_out(PredictRequest("mixtral-8x7b", "p5.48xlarge", 2, "shard=16,ep=16"), C)
