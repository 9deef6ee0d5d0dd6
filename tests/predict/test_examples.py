"""Numbers worked out by hand, so that a formula cannot drift unseen."""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.predict.collectives import all_gather, all_reduce, group
from trainwright.predict.constants import constants
from trainwright.predict.evidence import NEW_SOURCE
from trainwright.predict.goodput import DAY, START_S, best_interval, effective_time, goodput, simulate
from trainwright.predict.hardware import Cluster, cluster, device, fabric, inner_link
from trainwright.predict.layout import read_plan, shared_sequences
from trainwright.predict.memory import host_bytes, memory, state_bytes
from trainwright.predict.operators import optimizer_time
from trainwright.predict.products import MatmulRate, matmul_time, trainer_matmul_rate
from trainwright.predict.profiles import profile
from trainwright.predict.published.row_trainer import profile_for
from trainwright.predict.published.rows import answer, setup_of
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.setup_record import from_record
from trainwright.predict.step import stages, step_time
from trainwright.train.flops import flops_per_token
from trainwright.train.models.shape import ModelShape, parameter_count, shapes
from trainwright.train.parallel.plan import ParallelPlan

OWN = Path(__file__).parents[2] / "benchmarks" / "data" / "h200_operators.csv"
C = constants()
LLAMA8 = shapes()["llama3-8b"]


def test_roof_of_an_h100():
    assert device("h100").matmul_rate("bf16", C) == pytest.approx(794.5e12 * C.matmul_sustained_hopper)
    assert device("h100").matmul_rate("fp8", C) == pytest.approx(1402.6e12 * C.matmul_sustained_hopper)


def test_a_large_product_runs_near_the_roof_and_a_small_one_does_not():
    rate = trainer_matmul_rate(device("h200"), profile("torch"), "bf16", "", C)
    large = matmul_time(16384, 14336, 8192, rate, C)
    assert 2 * 16384 * 14336 * 8192 / large / rate.sustained > 0.93
    small = matmul_time(256, 256, 256, rate, C)
    assert 2 * 256**3 / small / rate.sustained < 0.05


def test_a_deep_product_with_few_outputs_is_shared_by_all_multiprocessors():
    """The gradient of a 384 x 384 weight over 88,320 tokens (DINO): six tiles, and 132 multiprocessors."""
    rate = trainer_matmul_rate(device("h200"), profile("torch"), "bf16", "", C)
    assert matmul_time(384, 384, 88320, rate, C) < 4 * 2 * 384 * 384 * 88320 / rate.sustained


def test_the_fastest_algorithm_of_a_product_reaches_the_power_limit_sooner():
    ours, chip = profile("trainwright"), device("h200")
    first, best = (trainer_matmul_rate(chip, ours, "bf16", "", C, timed) for timed in (False, True))
    narrow = (65536, 3072, 768)
    assert 1.05 < matmul_time(*narrow, first, C) / matmul_time(*narrow, best, C) < 1.25  # as cublaslt.py measured
    wide = (65536, 8192, 8192)  # at the power limit with either
    assert matmul_time(*wide, first, C) == pytest.approx(matmul_time(*wide, best, C), rel=0.03)


def own_rows(op: str) -> list[dict[str, str]]:
    with open(OWN, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["op"] == op]


def test_our_own_products_on_the_h200_are_reproduced():
    """Products of random data in a tight loop settle at 0.868 of the best; shapes from 1024 to 65536 wide."""
    sustained = MatmulRate(794.5e12 * 0.868, 794.5e12 * 0.868, 132, 4.0e12)
    orders = {"forward": "mnk", "input-grad": "mkn", "weight-grad": "nkm"}
    errors = []
    for row in own_rows("matmul"):
        if row["precision"] == "bf16":
            m, n, k = (int(row[letter]) for letter in orders[row["kind"]])
            errors.append(abs(matmul_time(m, n, k, sustained, C) / float(row["seconds"]) - 1))
    assert len(errors) > 200
    assert statistics.median(errors) <= 0.05


def test_our_own_small_models_on_the_h200_are_reproduced():
    """A bare training loop (no data, no gradient norm, no logging): all but the fixed cost of a step."""
    sizes = {"125m": (12, 768, 12, 12, 2048, 50304), "1b": (16, 2048, 32, 8, 8192, 128256)}
    chip = replace(device("h200"), domain=1)
    machine = Cluster(chip, 1, 1, inner_link(chip, 8), fabric("infiniband", 50.0))
    errors = []
    for row in own_rows("train"):
        shape = ModelShape("own", "llama", *sizes[row["kind"].split()[0]], context=8192)
        stack = replace(profile("torch-compiled" if row["precision"] == "compiled" else "torch"), attention="cudnn")
        recompute = "full" if row["kind"].endswith("True") else "none"
        batch = Batch(int(row["n"]), int(row["m"]), 1)
        took = step_time(Setup(shape, machine, ParallelPlan(), batch, stack, zero=0, recompute=recompute), C)
        errors.append(abs((took.total - C.step_fixed) / float(row["seconds"]) - 1))
    assert len(errors) == 12
    assert statistics.median(errors) <= 0.06
    assert max(errors) <= 0.35


def test_our_own_trainer_on_the_h200_is_predicted():
    """`trainwright train --model llama3.2-1b --sequence 4096 --batch 4`, plain and with --compile, 30 steps; before
    the trainer timed the algorithms of a product."""
    chip = replace(device("h200"), domain=1)
    machine = Cluster(chip, 1, 1, inner_link(chip, 8), fabric("infiniband", 50.0))
    for row in own_rows("trainer"):
        name = "trainwright" if row["precision"] == "compiled" else "trainwright-eager"
        stack = replace(profile(name), timed_products=False)
        batch = Batch(int(row["n"]), int(row["m"]), 1)
        job = Setup(shapes()[row["kind"]], machine, ParallelPlan(), batch, stack, zero=0)
        assert step_time(job, C).total == pytest.approx(float(row["seconds"]), rel=0.06)
        assert memory(job, C).gib == pytest.approx(float(row["gib"]), rel=0.12)


def rows_of_our_trainer() -> list[dict[str, str]]:
    with OWN.with_name("h200_trainer.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", rows_of_our_trainer(), ids=lambda row: row["id"])
def test_our_own_benchmark_on_the_h200_is_predicted(row):
    """The 1B and 8B shapes, bf16 and every float8 recipe of an H200, with recomputation and with offloaded activations;
    and the GPT-2, encoders, T5, DINO and LoRA of `benchmarks/train_families.py`. Encoders are faster than predicted; on
    a machine of the next day RoBERTa again by 8 %, ESM-2 by 3 %."""
    said, encoder = answer(row, C), row["objective"] == "mlm"
    wanted = pytest.approx(float(row["tokens_per_s_per_gpu"]), rel=0.08 if encoder else 0.05)
    assert said["tokens_per_s_per_gpu"] == wanted
    if row["mem_gib_per_gpu"]:
        assert said["mem_gib_per_gpu"] == pytest.approx(float(row["mem_gib_per_gpu"]), rel=0.09)


def test_the_accuracy_page_has_every_run_of_our_trainer():
    """Its table is in the order of the rows: measured and predicted tokens/s, the error, measured and predicted GiB."""
    page = (OWN.parents[2] / "docs" / "predict" / "accuracy.md").read_text(encoding="utf-8")
    speeds = r"\| (2026-\d\d-\d\d) \| ([\d,]+)[^|]* \| ([\d,]+) \(([+-]?\d+) %\)"
    lines = re.findall(speeds + r" \| ([\d.]*)[^|]*\| (\d+) GiB \|", page)
    for line, row in zip(lines, rows_of_our_trainer(), strict=True):
        day, speed, predicted, error, gib, predicted_gib = line
        said, measured = answer(row, C), float(row["tokens_per_s_per_gpu"])
        rate = float(str(said["tokens_per_s_per_gpu"]))
        assert day in row["notes"]
        assert float(speed.replace(",", "")) == float(f"{measured:.3g}"), row["id"]
        assert float(predicted.replace(",", "")) == float(f"{rate:.3g}"), row["id"]
        assert int(error) == round(100 * (rate / measured - 1)), row["id"]
        assert gib == row["mem_gib_per_gpu"], row["id"]
        assert int(predicted_gib) == round(float(str(said["mem_gib_per_gpu"]))), row["id"]


@pytest.mark.parametrize("width", ["1b", "8b-width"])
@pytest.mark.parametrize("recipe", ["rowwise", "blockwise"])
def test_a_float8_recipe_loses_what_it_was_measured_to_lose(width, recipe):
    """Both runs of one benchmark on one machine, so that their ratio is better known than either speed."""
    rows = {row["id"]: row for row in rows_of_our_trainer()}
    fine, plain = (rows[f"{width}-{name}-b8-one-document"] for name in (f"fp8-{recipe}", "fp8"))
    predicted, measured = (
        read(fine) / read(plain)
        for read in (
            lambda row: float(str(answer(row, C)["tokens_per_s_per_gpu"])),
            lambda row: float(row["tokens_per_s_per_gpu"]),
        )
    )
    assert predicted == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("share", ["0.25", "1"])
def test_host_memory_of_offloaded_activations_is_predicted(share):
    row = next(row for row in rows_of_our_trainer() if row["id"] == f"8b-width-bf16-b8-offload-{share}")
    measured = re.search(r"([\d.]+) GiB in host memory", row["notes"])
    assert measured is not None
    setup = setup_of(row, C).setup
    assert setup is not None
    assert host_bytes(setup) / 2**30 == pytest.approx(float(measured[1]), rel=0.08)


def test_the_trainer_of_today_is_predicted_where_it_became_faster():
    """`predict`, without a row's date: DINO on one H200 at 2,666 images/s."""
    request = PredictRequest("vit-s-16", "p5en.48xlarge", 1, "replicate=1", gpus_per_node=1, sequences=128)
    said = predict(replace(request, micro_batch=128, recompute="none"))
    assert said.tokens_per_s / said.sample_tokens == pytest.approx(2666, rel=0.05)


def test_optimizer_of_our_own_h200():
    assert optimizer_time(536870912, device("h200"), profile("trainwright"), C) == pytest.approx(4.33e-3, rel=0.02)


def test_all_gather_of_256_ranks_is_latency_bound():
    """9 us a hop: 32 MiB over 32 p5 nodes took 2.70 ms; the wire alone would need 0.09 ms."""
    took = all_gather(2**25, group(cluster("p5.48xlarge", 32), 256, 1))
    assert took == pytest.approx(2.70e-3, rel=0.15)


def test_all_reduce_in_one_node_uses_the_switch():
    took = all_reduce(2**30, group(cluster("p5.48xlarge", 1), 8, 1))
    assert took == pytest.approx(4.253e-3, rel=0.05)


def test_state_of_llama_8b_sharded_over_eight():
    machines = cluster("p5.48xlarge", 1)
    job = Setup(LLAMA8, machines, ParallelPlan(shard=8), Batch(8192, 1, 1), profile("trainwright"))
    assert state_bytes(job)[0] == pytest.approx(16 * parameter_count(LLAMA8) / 8)


def test_the_bubble_is_stages_less_one_over_virtual_stages():
    machines = cluster("p5.48xlarge", 4)
    job = Setup(LLAMA8, machines, ParallelPlan(shard=4, pp=8), Batch(8192, 1, 16), profile("megatron"))
    took = step_time(job, C)
    assert took.parts["bubble"] == pytest.approx(7 * stages_mean(job), rel=1e-6)
    halved = step_time(replace(job, plan=replace(job.plan, virtual_stages=2)), C)
    assert halved.parts["bubble"] == pytest.approx(took.parts["bubble"] / 2, rel=1e-6)


def stages_mean(job: Setup) -> float:
    took = step_time(job, C)
    fraction = (took.microbatch * job.batch.count - took.parts["imbalance"]) / job.batch.count
    assert stages(job, 1.0, 0.0) == (4.0, 4.0)
    return fraction


def test_layers_that_do_not_divide_make_room_for_the_embedding_and_the_head():
    """Llama 3.1 405B: 126 layers, 8 stages of 16 places, two of them the embedding and the head."""
    big = shapes()["llama3.1-405b"]
    job = Setup(
        big, cluster("p5.48xlarge", 8), ParallelPlan(shard=1, tp=8, pp=8), Batch(8192, 1, 8), profile("megatron")
    )
    assert stages(job, 1.0, 1.0)[0] == 16.0


def test_mfu_is_the_trainers_definition():
    """As metrics.jsonl of a run at the predicted speed would have it: train/flops.py, over the dense bf16 peak."""
    p = predict(PredictRequest("llama3-8b", "p5.48xlarge", 1, sequence=8192))
    assert p.mfu == pytest.approx(p.tokens_per_s_per_gpu * flops_per_token(LLAMA8, 8192) / 989e12)
    fp8 = predict(PredictRequest("llama3-8b", "p5.48xlarge", 1, sequence=8192, precision="fp8"))
    assert fp8.mfu == pytest.approx(fp8.tokens_per_s_per_gpu * flops_per_token(LLAMA8, 8192) / 989e12)


def test_a_batch_in_tokens_becomes_sequences_the_ranks_can_share():
    assert shared_sequences(4_000_000, 8192, 16) == 512
    assert shared_sequences(8192, 8192, 16) == 16


def test_llama_3_405b_kept_above_nine_tenths_of_its_time():
    """466 interruptions in 54 days on 2,048 nodes; more than 90 % effective time."""
    found = goodput(2048, stall=5, interval=600)
    assert found.failures_per_day == pytest.approx(466 / 54)
    assert 0.90 < found.effective < 0.93


@pytest.mark.parametrize("nodes", [16, 2048, 12_500])
def test_formula_and_simulation_agree(nodes):
    found = goodput(nodes, stall=20)
    played = simulate(30 * DAY, found.interval_s, 20, found.restart_s, found.mean_time_between_failures_s, runs=8)
    assert played == pytest.approx(found.effective, rel=0.02)


def test_the_best_interval_beats_its_neighbours():
    mtbf = 10_000.0
    best = best_interval(20, mtbf)
    here = effective_time(best, 20, 600, mtbf)
    assert here > effective_time(best * 2, 20, 600, mtbf)
    assert here > effective_time(best / 2, 20, 600, mtbf)


def test_cost_is_price_over_rate():
    p = predict(PredictRequest("llama3-8b", "p5.48xlarge", 2, sequence=8192, batch_tokens=2**20, tokens=1e12))
    assert p.cost is not None
    assert p.cost.usd_per_trillion_tokens == pytest.approx(
        p.cost.usd_hour / 3600 / (p.tokens_per_s * p.goodput.effective) * 1e12
    )
    start_up = p.cost.usd_hour * START_S / 3600
    assert p.train_usd == pytest.approx(p.cost.usd_per_trillion_tokens + start_up, rel=1e-6)
    assert p.cost.date


@pytest.mark.parametrize("trainer", ["trainwright", "megatron", "llm-foundry"])
@pytest.mark.parametrize(
    "plan", ["", "tp=8,pp=2", "shard=4,tp=2,cp=2", "replicate=16", "zero=2", "pp=4,virtual_stages=2"]
)
def test_a_record_restores_exactly_the_setup_it_was_made_from(trainer, plan):
    """What explains, draws or calibrates a prediction may start from prediction.json: nothing may be lost in it."""
    request = PredictRequest("llama3-70b", "p5.48xlarge", 2, plan, sequence=8192, batch_tokens=2**20, trainer=trainer)
    p = predict(request)
    assert p.setup is not None
    assert from_record(json.loads(json.dumps(p.to_dict()))) == p.setup


def test_partial_recomputation_survives_its_record():
    """The text rounds ("full on 38% of the layers"); the record does not."""
    request = PredictRequest(
        "llama3-70b",
        "p5.48xlarge",
        8,
        "tp=4,pp=4",
        sequence=8192,
        batch_tokens=2**20,
        micro_batch=1,
        trainer="megatron",
    )
    p = predict(request)
    assert p.setup is not None
    assert 0 < p.setup.recompute_part < 1
    assert from_record(p.to_dict()).recompute_part == p.setup.recompute_part


def test_a_record_of_an_earlier_version_is_still_read():
    earlier = {
        "model": "llama3-8b", "instance": "p5.48xlarge", "nodes": 2, "plan": "shard=2,pp=8,interleave=2",
        "precision": "fp8", "trainer": "megatron", "recompute": "full on 38% of the layers", "seq": 8192,
        "micro_batch": 1, "microbatches": 16,
    }  # fmt: skip
    s = from_record(earlier)
    assert s is not None
    assert (s.plan, s.zero) == (ParallelPlan(shard=2, pp=8, virtual_stages=2), 1)
    assert (s.recompute, s.recompute_part, s.batch, s.precision) == ("full", 0.38, Batch(8192, 1, 16), "fp8")


def test_a_prediction_is_plain_data():
    p = predict(PredictRequest("llama3-8b", "p5.48xlarge"))
    assert json.loads(json.dumps(p.to_dict()))["model"] == "llama3-8b"
    assert p.low < p.tokens_per_s_per_gpu < p.high


@pytest.mark.parametrize(
    ("text", "words"),
    [("tp=3", "does not use all of the 8 GPUs"), ("tensr=2", "no axis 'tensr'"), ("tp=x", "not a whole number"),
     ("shard=3", "does not use all of the 8 GPUs"), ("tp=8,tp=4", "given twice"), ("zero=7", "not a ZeRO stage"),
     ("zero=1,zero=2", "not a ZeRO stage")],
)  # fmt: skip
def test_plans_that_cannot_be_used_say_why(text, words):
    with pytest.raises(UserError, match=words) as caught:
        read_plan(text, 8)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "plan", "zero"),
    [("", ParallelPlan(shard=8), None), ("tp=2,zero=1", ParallelPlan(shard=4, tp=2), 1),
     ("zero=0", ParallelPlan(shard=8), 0), ("fsdp=2", ParallelPlan(shard=2, replicate=4), None)],
)  # fmt: skip
def test_a_plan_is_completed_and_its_zero_stage_set_apart(text, plan, zero):
    assert read_plan(text, 8) == (plan, zero)


def test_heads_that_do_not_divide_are_refused_with_a_plan_that_works():
    with pytest.raises(UserError, match="32 attention heads cannot be split into 64") as caught:
        predict(PredictRequest("llama3-8b", "p5.48xlarge", 8, "tp=64"))
    assert "tp=8" in caught.value.fix


def test_the_number_of_sequences_is_taken_as_given():
    """A batch in tokens is rounded to what ranks can share well; one in sequences is the job's own and is not."""
    request = PredictRequest("llama3-8b", "p5.48xlarge", 1, sequence=8192, sequences=24, micro_batch=1)
    assert predict(request).tokens_per_step == 24 * 8192
    with pytest.raises(UserError, match="does not divide over 8 data ranks"):
        predict(replace(request, sequences=25))


def test_what_is_outside_the_evidence_is_marked_and_wider():
    known = predict(PredictRequest("llama3-8b", "p5.48xlarge", trainer="megatron"))
    strange = predict(PredictRequest("llama3-8b", "g6e.48xlarge", 4))
    assert known.outside_evidence == [NEW_SOURCE]
    assert strange.outside_evidence
    assert math.log(strange.high / strange.low) > math.log(known.high / known.low)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("pytorch/torchtitan", "torchtitan"), ("NVIDIA/dgxc-benchmarking", "megatron"), ("unheard-of", None),
     ("NVIDIA-NeMo/Megatron-Bridge", "megatron"), ("foundation-model-stack/fms-fsdp", "torch-fsdp1")],
)  # fmt: skip
def test_frameworks_name_their_profile(name, wanted):
    found = profile_for(name)
    assert (found.name if found else None) == wanted


def test_a_checkpoint_is_as_large_as_the_one_that_was_measured() -> None:
    """docs/train/checkpoints.md: 14.8 GB for Llama 3.2 1B, written by our trainer on an H200."""
    assert predict(PredictRequest("llama3.2-1b", "p5.48xlarge")).needs.checkpoint_gb == pytest.approx(14.8, rel=0.01)
    assert predict(PredictRequest("llama3.2-1b", "p5.48xlarge", trainer="megatron")).needs.checkpoint_gb > 17
