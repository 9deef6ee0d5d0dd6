"""Physics that must hold for any job: more of a resource never hurts, parts add up, memory never shrinks with work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.predict.collectives import all_gather, all_reduce, all_to_all, group
from trainwright.predict.constants import constants
from trainwright.predict.hardware import cluster
from trainwright.predict.memory import memory
from trainwright.predict.profiles import profiles
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import step_time
from trainwright.train.models.shape import shapes
from trainwright.train.parallel.plan import ParallelPlan

C = constants()
MODELS = ("llama3-8b", "llama3-70b", "gpt2-1.5b", "mixtral-8x7b")


@st.composite
def jobs(draw: st.DrawFn) -> Setup:
    nodes = draw(st.sampled_from((1, 2, 4, 16)))
    machines = cluster(draw(st.sampled_from(("p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge"))), nodes)
    tp, pp, cp = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2)))
    if machines.gpus % (tp * pp * cp):
        tp, pp, cp = 1, 1, 1
    dp = machines.gpus // (tp * pp * cp)
    zero = draw(st.sampled_from((0, 1, 3)))
    shape = shapes()[draw(st.sampled_from(MODELS))]
    plan = ParallelPlan(shard=dp, tp=tp, pp=pp, cp=cp)
    batch = Batch(draw(st.sampled_from((1024, 8192))), draw(st.sampled_from((1, 4))), draw(st.sampled_from((1, 8))))
    stack = profiles()[
        draw(st.sampled_from(("trainwright", "megatron", "llm-foundry", "torchtitan", "megatron-classic")))
    ]
    return Setup(
        shape, machines, plan, batch, stack, draw(st.sampled_from(("bf16", "fp8"))), zero,
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
    )  # fmt: skip


@given(jobs())
@settings(max_examples=150, deadline=None)
def test_parts_are_times_and_add_up(job):
    took = step_time(job, C)
    assert took.total == pytest.approx(sum(took.parts.values()))
    assert all(value >= -1e-9 * took.total for value in took.parts.values())
    assert took.total > 0


@given(jobs(), st.floats(1.1, 4.0))
@settings(max_examples=100, deadline=None)
def test_faster_links_are_never_slower(job, factor):
    machines = job.cluster
    better = replace(
        machines,
        inside=replace(machines.inside, rate=machines.inside.rate * factor),
        between=replace(machines.between, rate=machines.between.rate * factor),
    )
    assert step_time(replace(job, cluster=better), C).total <= step_time(job, C).total * (1 + 1e-9)


@given(jobs(), st.floats(1.05, 3.0))
@settings(max_examples=100, deadline=None)
def test_more_memory_bandwidth_is_never_slower(job, factor):
    device = replace(job.cluster.device, bandwidth=job.cluster.device.bandwidth * factor)
    faster = replace(job, cluster=replace(job.cluster, device=device))
    assert step_time(faster, C).total <= step_time(job, C).total * (1 + 1e-9)


@given(jobs())
@settings(max_examples=100, deadline=None)
def test_recomputation_trades_time_for_memory(job):
    none, full = replace(job, recompute="none"), replace(job, recompute="full")
    assert step_time(full, C).total >= step_time(none, C).total
    if job.shape.layers // job.plan.pp >= 4:
        assert memory(full, C).activations <= memory(none, C).activations


@given(jobs())
@settings(max_examples=100, deadline=None)
def test_a_larger_microbatch_holds_more(job):
    larger = replace(job, batch=replace(job.batch, micro=job.batch.micro * 2))
    assert memory(larger, C).total >= memory(job, C).total


@given(jobs())
@settings(max_examples=60, deadline=None)
def test_virtual_stages_shrink_the_bubble(job):
    if job.plan.pp == 1:
        return
    two = replace(job, plan=replace(job.plan, virtual_stages=2))
    assert step_time(two, C).parts["bubble"] < step_time(job, C).parts["bubble"]


@given(
    st.sampled_from((all_reduce, all_gather, all_to_all)), st.sampled_from((1, 2, 4, 16)),
    st.integers(1, 2**34), st.integers(1, 2**34),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_collectives_grow_with_size_and_never_beat_the_link(collective, nodes, one, two):
    g = group(cluster("p5.48xlarge", nodes), nodes * 8, 1)
    small, large = sorted((one, two))
    assert collective(small, g) <= collective(large, g)
    share = large * (g.ranks - 1) / g.ranks
    assert collective(large, g) >= share / (g.inside.rate * 1.1 * (2 if collective is all_reduce else 1)) * 0.5


@given(st.sampled_from((2, 4, 8, 32)))
def test_more_ranks_take_longer_to_gather(nodes):
    few, many = (group(cluster("p5.48xlarge", n), n * 8, 1) for n in (nodes, nodes * 2))
    assert all_gather(2**25, many) > all_gather(2**25, few)
