"""Each physical effect of the time model on its own: what it depends on, and what it leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trainwright.errors import UserError
from trainwright.predict.collectives import all_gather, broadcasts, group
from trainwright.predict.constants import constants
from trainwright.predict.evidence import SCALES, outside
from trainwright.predict.hardware import cluster, device
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import HOST_ROUNDING, host_bytes, memory, saved_bytes_of_layer
from trainwright.predict.objective import passes
from trainwright.predict.operators import layer_work, mean_layer
from trainwright.predict.products import library_progress
from trainwright.predict.profiles import profile, profiles
from trainwright.predict.published.row_trainer import profile_of
from trainwright.predict.published.rows import setup_of
from trainwright.predict.request import PredictRequest
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import gathers_float8, recomputed, step_time
from trainwright.train.models.shape import shapes
from trainwright.train.parallel.plan import ParallelPlan

C = constants()


def job(trainer: str = "megatron", nodes: int = 1, micro: int = 1, **axes: int) -> Setup:
    machines = cluster("p5.48xlarge", nodes)
    plan = ParallelPlan(**axes)
    plan = replace(plan, replicate=machines.gpus // plan.world)
    return Setup(shapes()["llama3-8b"], machines, plan, Batch(8192, micro, 8), profile(trainer), zero=0)


def test_gradients_have_the_width_that_the_state_counts():
    """ZeRO-1 keeps whole: 16-bit weights and the gradients, in the width in which they are reduced."""
    whole = {name: p for name, p in profiles().items() if p.data == "zero1" and p.resident < p.state_bytes}
    assert {"megatron", "megatron-lm", "neuronx", "internevo"} <= set(whole)
    for name, trainer in whole.items():
        assert trainer.resident == 2 + trainer.grad_bytes, name


@pytest.mark.parametrize("overlap", ["buffers", "async"])
def test_overlapped_tensor_parallelism_leaves_one_chunk_exposed(overlap):
    def exposed(tp: int) -> float:
        s = job(tp=tp)
        both = [replace(s, profile=replace(s.profile, tp_overlap=how)) for how in (overlap, "none")]
        return step_time(both[0], C).parts["tensor parallel"] / step_time(both[1], C).parts["tensor parallel"]

    assert exposed(8) < exposed(4) < exposed(2) < (1.3 if overlap == "buffers" else 1)


def test_slow_nodes_cost_the_same_share_for_every_doubling():
    shares = []
    for nodes in (1, 2, 4, 64):
        step = step_time(job(nodes=nodes), C)
        shares.append(step.parts["stragglers"] / (step.total - step.parts["stragglers"]))
    assert shares[0] == 0
    assert shares == pytest.approx([0, C.straggler_doubling, 2 * C.straggler_doubling, 6 * C.straggler_doubling])


def test_libraries_improve_after_a_generation_is_shipped():
    trainer = profile("megatron")
    first, later = (replace(trainer, released=year) for year in (2025.0, 2026.5))
    assert library_progress(device("b200"), trainer, C) == 1.0  # today's
    assert library_progress(device("b200"), first, C) < library_progress(device("b200"), later, C) < 1.0
    assert library_progress(device("a100-80"), first, C) == pytest.approx(1.0, abs=1e-3)


def test_a_row_is_predicted_with_the_libraries_of_its_date():
    row = {"model": "LLAMA3_8B", "source_repo_or_doc": "NVIDIA-NeMo/Megatron-Bridge", "notes": "container=25.09"}
    assert profile_of(row).released == pytest.approx(2025 + 8 / 12)
    assert profile_of({**row, "notes": ""}).released == 0


def test_recomputation_that_stops_early_skips_the_last_product():
    s = replace(job("torchtitan"), recompute="full")
    layer = mean_layer(s, C)
    whole = recomputed(replace(s, profile=replace(s.profile, early_stop=False)), layer)
    assert whole == pytest.approx(layer.forward)
    shape = s.shape
    share = shape.ffn * shape.hidden / (3 * shape.ffn * shape.hidden + 2 * (32 + 8) * 128 * shape.hidden)
    assert whole - recomputed(s, layer) == pytest.approx(share * layer.products_forward)


def test_selective_recomputation_repeats_all_quantised_products():
    s = replace(job("torchtitan"), recompute="selective")
    layer = mean_layer(s, C)
    more = recomputed(replace(s, precision="fp8"), layer) - recomputed(s, layer)
    assert more == pytest.approx(0.5 * layer.products_forward)


def test_gathers_along_the_sequence_are_copied_unless_it_comes_first():
    def cost(trainer: str, micro: int) -> float:
        s = job("torchtitan", micro=micro, tp=8)
        s = replace(s, profile=replace(s.profile, batch_first=trainer == "torch"))
        return step_time(s, C).parts["tensor parallel"]

    assert cost("torch", 1) == cost("megatron", 1)
    assert cost("torch", 4) > 1.1 * cost("megatron", 4)


def test_balanced_context_parallelism_works_on_two_chunks_per_rank():
    s = job(cp=2)
    one = passes(s.shape, 8192, s.objective)[0]
    assert layer_work(s, s.shape, one, C).chunks == 4
    uneven = replace(s, profile=replace(s.profile, balanced_context=False))
    assert layer_work(uneven, s.shape, one, C).chunks == 2


def test_one_broadcast_per_owner_costs_the_same_for_every_owner():
    """A chain that grows with the owners, filled with parts that shrink with them: 2 sqrt(hop x wire) each."""
    size = 14e9
    each = []
    for nodes in (32, 128):
        g = group(cluster("p4de.24xlarge", nodes), 8 * nodes, 1)
        wire = size / (g.between.rate * 8 * g.between.ring_efficiency)
        each.append((broadcasts(size, g) - wire) / g.ranks - g.between.start)
        assert each[-1] == pytest.approx(2 * math.sqrt(g.between.hop * wire), rel=0.01)
    assert each[0] == pytest.approx(each[1], rel=0.01)
    inside = group(cluster("p4de.24xlarge", 1), 8, 1)
    assert broadcasts(size, inside) == all_gather(size, inside)


def test_fine_tuning_rows_have_adapters_and_packed_documents():
    row = {
        "model": "Llama-3-8B LoRA", "source_repo_or_doc": "NVIDIA/dgxc-benchmarking", "seq_len": "4096",
        "gpu": "H100-SXM-80GB", "num_gpus": "8", "micro_batch": "1", "global_batch_seqs": "32", "notes": "LoRA r=8",
    }  # fmt: skip
    s = setup_of(row, C).setup
    assert s is not None
    assert (s.adapter_rank, s.frozen) == (8, True)
    assert 0 < s.packed < 1024
    tuned = setup_of({**row, "model": "Llama-3-8B SFT", "notes": ""}, C).setup
    assert tuned is not None
    assert (tuned.adapter_rank, tuned.packed) == (0, s.packed)
    plain = setup_of({**row, "model": "Llama-3-8B", "notes": ""}, C).setup
    assert plain is not None
    assert (plain.adapter_rank, plain.packed) == (0, 0)


def test_ten_thousand_gpus_do_not_drown_in_gathers():
    """Rings beyond 512 ranks grow with the logarithm, and hybrid sharding is faster than one wide shard."""

    def mfu(**axes: int) -> float:
        s = job("torchtitan", nodes=2048, **axes)
        s = replace(s, shape=shapes()["llama3.1-405b"], zero=3, recompute="full")
        step = step_time(s, C)
        return step.compute / step.total

    assert mfu(tp=8, shard=2048) > 0.2
    assert mfu(tp=8, shard=64) > mfu(tp=8, shard=2048)


def test_weight_gradients_fill_a_part_of_the_bubble():
    """What stays of 1F1B's bubble: forward and backward without weight gradients, less as much again as is put off."""
    plain = replace(job("trainwright-eager", nodes=2, pp=4), zero=0)
    put_off = replace(plain, zero_bubble=True)
    before, after = (step_time(s, C).parts["bubble"] for s in (plain, put_off))
    stage = before / 3  # of four stages, each waits for three
    weights = mean_layer(plain, C).products_backward / 2 * plain.shape.layers / 4
    assert after == pytest.approx(3 * (stage - 2 * weights))
    assert 0.3 < after / before < 0.6, "more than a third: attention and norms have no weight gradients to put off"
    eight = replace(put_off, precision="fp8")
    assert step_time(eight, C).parts["bubble"] == pytest.approx(
        step_time(replace(eight, zero_bubble=False), C).parts["bubble"]
    ), "float8 products put nothing off"


def test_offloaded_activations_cost_what_the_link_to_the_host_cannot_hide():
    plain = replace(job("trainwright", shard=8), zero=3)
    layers = plain.shape.layers
    kept = saved_bytes_of_layer(plain)
    half, whole = (replace(plain, offload_part=part) for part in (0.5, 1.0))
    gone = [(memory(plain, C).activations - memory(s, C).activations) / kept for s in (half, whole)]
    assert gone == pytest.approx([layers / 2 - 1, layers - 2]), "the newest stays, and of neighbours the one before it"
    assert host_bytes(whole) == 2 * host_bytes(half) == pytest.approx(HOST_ROUNDING * layers * kept)
    assert step_time(whole, C).parts["offload"] > step_time(half, C).parts["offload"]
    one, layer = kept / plain.cluster.device.host_rate, mean_layer(plain, C)
    late = plain.batch.count * (layers - 1) * (2 * one - layer.forward - layer.backward)
    assert step_time(whole, C).parts["offload"] == pytest.approx(late), "the last layer's copy runs behind the head"
    last = replace(whole, offload_part=1 / layers)
    assert step_time(last, C).parts["offload"] == 0.0
    inputs = replace(whole, recompute="full")
    assert step_time(inputs, C).parts["offload"] == 0.0, "a layer's input alone is hidden behind its compute"
    assert host_bytes(inputs) < host_bytes(whole) / 10


def test_what_only_our_trainer_has_is_refused_beside_another():
    request = PredictRequest("llama3-8b", "p5.48xlarge", plan="pp=2", trainer="megatron")
    for more in ({"offload_activations": 1.0}, {"pipeline_schedule": "zero-bubble"}):
        with pytest.raises(UserError, match="our trainer only"):
            lay_out(replace(request, **more), C)
    own = replace(request, trainer="trainwright", pipeline_schedule="zero-bubble")
    with pytest.raises(UserError, match="recomputed"):
        lay_out(replace(own, recompute="full"), C)
    laid = lay_out(own, C)
    assert (laid.profile.name, laid.recompute, laid.zero_bubble) == ("trainwright-eager", "none", True)
    assert not lay_out(replace(own, plan="shard=8"), C).zero_bubble


def test_our_float8_weights_travel_in_one_byte_on_request():
    """torchtitan, compiled, does so by itself."""
    request = PredictRequest("llama3-8b", "p5.48xlarge", 16, sequence=2048, precision="fp8", micro_batch=1)
    plain = lay_out(request, C)
    gathered = lay_out(replace(request, float8_gather=True), C)
    assert gathers_float8(gathered)
    assert not gathers_float8(plain)
    assert gathers_float8(replace(plain, profile=replace(profile("torchtitan"), fusion="compiled")))
    assert step_time(gathered, C).total < step_time(plain, C).total


def test_finer_scales_cost_a_second_cast_and_the_rate_of_their_products():
    request = PredictRequest("llama3-8b", "p5en.48xlarge", 1, sequence=8192, precision="fp8", micro_batch=1)
    names = ("", "rowwise", "blockwise")
    plain, rows, blocks = (mean_layer(lay_out(replace(request, float8=name), C), C) for name in names)
    bf16 = mean_layer(lay_out(replace(request, precision="bf16"), C), C)
    casts = plain.elementwise_forward - bf16.elementwise_forward
    assert casts > 0
    assert rows.elementwise_forward == pytest.approx(plain.elementwise_forward + casts)
    assert blocks.elementwise_backward == rows.elementwise_backward
    assert plain.products_forward < rows.products_forward < blocks.products_forward < bf16.products_forward
    frozen = [lay_out(replace(request, float8=name, adapter_rank=16), C) for name in names]
    alone = {mean_layer(s, C).elementwise_forward for s in frozen}
    assert len(alone) == 1, "a frozen weight has no gradient, which would need the second cast"


@pytest.mark.parametrize(
    ("instance", "trainer", "recipe", "measured"),
    [("p5en.48xlarge", "trainwright", "rowwise", True), ("p5.48xlarge", "trainwright", "blockwise", True),
     ("p6-b200.48xlarge", "trainwright", "rowwise", False), ("p6-b200.48xlarge", "trainwright", "mxfp8", False),
     ("p5.48xlarge", "trainwright", "", True), ("p5.48xlarge", "torchtitan", "blockwise", False)],
)  # fmt: skip
def test_recipes_are_known_where_they_were_measured(instance, trainer, recipe, measured):
    request = PredictRequest("llama3-8b", instance, 1, precision="fp8", float8=recipe, trainer=trainer)
    assert (SCALES not in outside(lay_out(request, C), 1.0)) is measured
