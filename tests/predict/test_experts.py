"""Mixtures of experts: their shapes, FLOPs, memory under expert parallelism, exchange and imbalance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.catalog.models import active_parameter_count, model, parameter_count
from trainwright.predict import PredictRequest, predict
from trainwright.predict.collectives import group
from trainwright.predict.constants import constants
from trainwright.predict.hardware import cluster
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import memory
from trainwright.predict.operators import mean_layer
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import sharded_weights, step_time
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


def eight_bit(trainer: str, shape: str = "mixtral-8x7b", **changes) -> Setup:
    return job(8, shape=model(shape), profile=profile(trainer), precision="fp8", recompute="none", **changes)


def products(s: Setup) -> float:
    layer = mean_layer(s, C)
    return layer.products_forward + layer.products_backward


def elementwise(s: Setup) -> float:
    layer = mean_layer(s, C)
    return layer.elementwise_forward + layer.elementwise_backward


def cost_of_wider_experts(s: Setup) -> tuple[float, float, float]:
    """Seconds of products, seconds of elementwise work and bytes of activations that experts of twice the width add."""
    wide = replace(s, shape=replace(s.shape, ffn=2 * s.shape.ffn))
    kept = memory(wide, C).activations - memory(s, C).activations
    return products(wide) - products(s), elementwise(wide) - elementwise(s), kept


@pytest.mark.parametrize("trainer", ["trainwright", "trainwright-eager", "torchtitan"])
def test_experts_that_stay_bf16_cost_as_much_under_fp8(trainer):
    """Our float8 replaces linear layers only, torchtitan's needs a converter of its own for grouped products."""
    s = eight_bit(trainer)
    assert cost_of_wider_experts(s) == pytest.approx(cost_of_wider_experts(replace(s, precision="bf16")))
    assert products(s) < products(replace(s, precision="bf16")), "the products around attention are float8"


def test_experts_of_megatron_are_float8():
    s = eight_bit("megatron")
    narrow, wide = cost_of_wider_experts(s), cost_of_wider_experts(replace(s, precision="bf16"))
    assert narrow[0] < 0.7 * wide[0]
    assert narrow[1] > wide[1], "casts"


def test_a_shared_expert_and_dense_layers_are_float8_beside_bf16_experts():
    """Both are plain linear layers."""
    s = eight_bit("trainwright", "deepseek-v3")
    for field in ("shared_ffn", "dense_ffn"):
        wide = replace(s, shape=replace(s.shape, **{field: 2 * getattr(s.shape, field)}))
        eight, sixteen = (
            products(replace(wide, precision=precision)) - products(replace(s, precision=precision))
            for precision in ("fp8", "bf16")
        )
        assert eight < 0.7 * sixteen, field


def test_only_what_linear_layers_receive_is_cast_beside_bf16_experts():
    """Without a shared expert, those around attention."""
    s = eight_bit("trainwright")
    shared = replace(s, shape=replace(s.shape, shared_ffn=s.shape.ffn))
    casts = [elementwise(each) - elementwise(replace(each, precision="bf16")) for each in (s, shared)]
    h, q, kv = s.shape.hidden, s.shape.heads * s.shape.width_per_head, s.shape.kv_heads * s.shape.width_per_head
    elements = 4096 * (h + q + 0.5 * (q + 2 * kv + h))
    rate = s.cluster.device.bandwidth * C.memory_efficiency
    assert casts[0] == pytest.approx(C.fp8_cast_bytes_compiled * elements / rate)
    assert casts[1] > 3 * casts[0]


@pytest.mark.parametrize("trainer", ["trainwright", "torchtitan"])
def test_bf16_experts_travel_in_two_bytes_where_float8_weights_are_gathered(trainer):
    s = eight_bit(trainer, zero=3, plan=ParallelPlan(shard=16), float8_gather=True)
    s = replace(s, profile=replace(s.profile, fusion="compiled"))
    wide = replace(s, precision="bf16", float8_gather=False)
    assert gathered_seconds(s) < gathered_seconds(wide), "the other weights travel in one"
    added = [gathered_seconds(replace(each, shape=replace(s.shape, experts=16))) - gathered_seconds(each)
             for each in (s, wide)]  # fmt: skip
    assert added[0] == pytest.approx(added[1], rel=0.01)


def gathered_seconds(s: Setup) -> float:
    """Gathers and reductions of one layer, none of them hidden."""
    return sharded_weights(s, group(s.cluster, s.plan.shard, 1), (0.0, 0.0), C)[0]


def test_experts_take_as_long_whether_or_not_plain_products_are_timed():
    """The trainer times the algorithms of its linear layers, which grouped products are not."""
    s = job(1, plan=ParallelPlan(shard=16), profile=profile("trainwright"), recompute="none")
    assert s.timed_products
    untimed = replace(s, profile=replace(s.profile, timed_products=False))
    assert cost_of_wider_experts(s) == pytest.approx(cost_of_wider_experts(untimed))
