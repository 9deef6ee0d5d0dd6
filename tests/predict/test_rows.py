"""How the words of a published table are read: chips, networks, precisions, plans, and what a blank means."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trainwright.predict.constants import constants
from trainwright.predict.memory import memory
from trainwright.predict.prediction import verdict
from trainwright.predict.published.row_trainer import profile_of
from trainwright.predict.published.rows import flops_of_source, precision_of, published_flops_per_token, setup_of
from trainwright.predict.published.rowshape import chip_of, network_of, number, shape_of_row
from trainwright.train.flops import flops_per_token
from trainwright.train.models.shape import shapes
from trainwright.train.parallel.plan import ParallelPlan

ROW = {
    "id": "x", "source_repo_or_doc": "NVIDIA/dgxc-benchmarking", "model": "Llama-3.1-70B", "params_b": "70.55",
    "layers": "80", "hidden": "8192", "heads": "64", "kv_heads": "8", "ffn": "28672", "vocab": "128256",
    "seq_len": "8192", "gpu": "H100-SXM-80GB", "gpus_per_node": "8", "num_gpus": "64", "tp": "4", "pp": "4", "cp": "2",
    "micro_batch": "1", "global_batch_seqs": "128", "precision": "bf16", "notes": "vp=5; quality=A",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "watts"),
    [
        ("H100-SXM-80GB (DGX H100)", "h100", 700),
        ("H100-96GB-HBM2e-500W (Grand Teton)", "h100", 500),
        ("A100-SXM-40GB", "a100-40", 400),
        ("A100-SXM-80GB", "a100-80", 400),
        ("H100 PCIe 80GB", "h100", 350),
        ("GB200 (NVL72)", "gb200", 1200),
        ("GB300", "gb300", 1400),
        ("A10G-24GB (g5)", "a10g", 300),
    ],
)
def test_chips(text, name, watts):
    chip = chip_of(text)
    assert chip is not None
    assert (chip.name, chip.watts) == (name, watts)


def test_a_pcie_board_has_no_nvlink_and_an_unknown_chip_is_none():
    assert chip_of("H100 PCIe").nvlink == 0
    assert chip_of("abacus") is None


@pytest.mark.parametrize(
    ("text", "kind", "gb_s"),
    [
        ("DGX H100 ref arch 8x400Gbps NDR/node", "infiniband", 50),
        ("1600Gbps/node RoCE", "ethernet", 25),
        ("400Gb/s/GPU RDMA", "infiniband", 50),
        ("EFA 3200Gbps/node", "efa", 50),
        ("", "infiniband", 50),
        ("IB NDR 400Gbps (per-node count unstated)", "infiniband", 25),
    ],
)
def test_networks(text, kind, gb_s):
    assert network_of(text, chip_of("H100"), 8) == (kind, gb_s)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("bf16", "bf16"), ("float8 tensorwise (fp8 all-gather)", "fp8"), ("MXFP8", "fp8"), ("FP8-CS", "fp8"),
     ("NVFP4", "fp4"), ("", "bf16"), ("fp16", "bf16"), ("fp32", "fp32")],
)  # fmt: skip
def test_precisions(text, wanted):
    assert precision_of(text) == wanted


def test_gating_and_tying_follow_the_parameter_count():
    llama = shape_of_row(ROW)
    assert llama is not None
    assert (llama.activation, llama.tied) == ("swiglu", False)
    mpt = shape_of_row({**ROW, "model": "MPT-7b", "params_b": "6.66", "layers": "32", "hidden": "4096", "heads": "32",
                        "kv_heads": "32", "ffn": "16384", "vocab": "50368"})  # fmt: skip
    assert mpt is not None
    assert (mpt.activation, mpt.tied) == ("gelu", True)


def test_a_gated_model_has_rms_norms_whatever_its_width():
    """Llama 3.2 1B: its MLP is four times as wide as the model, which elsewhere tells an MLP without a gate."""
    wide = {"params_b": "1.498", "layers": "16", "hidden": "2048", "heads": "32", "kv_heads": "8", "ffn": "8192"}
    llama = shape_of_row({**ROW, "model": "Llama-3.2-1B untied", **wide})
    assert llama is not None
    assert (llama.activation, llama.norm, llama.tied) == ("swiglu", "rmsnorm", False)


def test_a_recipe_and_a_share_of_offloads_are_read_for_our_trainer_alone():
    stated = {"precision": "fp8 blockwise", "notes": "offload=0.25 of the layers", "tp": "1", "pp": "1", "cp": "1"}
    ours = setup_of({**ROW, **stated, "source_repo_or_doc": "trainwright"}, constants()).setup
    assert ours is not None
    assert (ours.precision, ours.float8, ours.rowwise, ours.offload_part) == ("fp8", "blockwise", False, 0.25)
    assert "offloaded" in setup_of({**ROW, **stated}, constants()).reason
    rows = setup_of({**ROW, "precision": "fp8 rowwise", "source_repo_or_doc": "pytorch/torchtitan"}, constants()).setup
    assert rows is not None
    assert (rows.float8, rows.rowwise) == ("", True)


def test_a_megatron_row_becomes_its_plan():
    made = setup_of(ROW, constants()).setup
    assert made is not None
    plan = made.plan
    assert plan == ParallelPlan(shard=2, tp=4, pp=4, cp=2, virtual_stages=5)
    assert made.zero == 1
    assert (made.batch.micro, made.batch.count) == (1, 64)
    assert made.tokens == 128 * 8192


def test_unstated_recomputation_is_the_least_that_fits():
    small = setup_of(ROW, constants()).setup
    assert small is not None
    assert small.recompute == "none"
    tight = setup_of({**ROW, "micro_batch": "4"}, constants()).setup
    assert tight is not None
    assert tight.recompute == "full"
    assert 0 < tight.recompute_part <= 1


def test_unstated_virtual_stages_are_as_many_as_the_layers_allow():
    made = setup_of({**ROW, "notes": "quality=A"}, constants()).setup
    assert made is not None
    assert made.plan.virtual_stages == 20
    unclear = setup_of({**ROW, "notes": "vp=n/a"}, constants()).setup
    assert unclear is not None
    assert unclear.plan.virtual_stages == 20


def test_what_a_row_states_changes_its_profile():
    titan = {**ROW, "source_repo_or_doc": "pytorch/torchtitan"}
    assert profile_of({**titan, "compile": "yes"}).fusion == "compiled"
    assert profile_of({**titan, "compile": "no"}).fusion == "eager"
    assert profile_of({**titan, "notes": "AsyncTP"}).tp_overlap == "async"
    assert profile_of({**ROW, "precision": "fp16"}).attention == "unfused"


@pytest.mark.parametrize(
    "oom",
    [
        {"model": "llama-2-7b"},
        {"model": "llama-3-8b"},
        {"model": "llama-3.1-8b", "gpus_per_node": "1", "num_gpus": "1"},
        {"model": "gemma2-9b", "gpus_per_node": "1", "num_gpus": "1", "micro_batch": "1", "notes": "LoRA"},
    ],
)
def test_what_ran_out_of_memory_is_not_said_to_fit(oom):
    """LitGPT's table: these ran out of memory on A10G; full fine-tuning of TinyLlama on one took 14.1 GB."""
    row = {
        "id": "oom", "source_repo_or_doc": "Lightning-AI/litgpt", "seq_len": "512",
        "gpu": "A10G-24GB (g5)", "gpus_per_node": "4", "num_gpus": "4", "micro_batch": "4", "precision": "bf16-true",
    }  # fmt: skip
    made = setup_of({**row, **oom}, constants()).setup
    assert made is not None
    assert verdict(memory(made, constants()).total, made.cluster.device.memory) != "yes"
    tiny = {
        "model": "tiny-llama-1.1b", "layers": "22", "hidden": "2048", "heads": "32", "kv_heads": "4", "ffn": "5632",
        "vocab": "32000", "num_gpus": "1",
    }  # fmt: skip
    small = setup_of({**row, **tiny}, constants()).setup
    assert small is not None
    assert verdict(memory(small, constants()).total, small.cluster.device.memory) == "yes"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "Mixtral MoE", "ep": "8"}, "mixture of experts"),
        ({"gpu": "B200 (power limited)"}, "power limit"),
        ({"tp": "3"}, "does not divide"),
        ({"notes": "QLoRA"}, "quantised"),
    ],
)
def test_rows_outside_the_model_say_why(change, reason):
    made = setup_of({**ROW, **change}, constants())
    assert made.setup is None
    assert reason in made.reason


def test_published_flops_count_the_whole_square_of_attention():
    """PaLM, appendix B: 6 N + 12 L H Q T; our own definition counts half of the second term for a causal decoder."""
    shape = shapes()["llama3-8b"]
    difference = published_flops_per_token(shape, 8192) - flops_per_token(shape, 8192)
    assert difference == pytest.approx(6 * 32 * 4096 * 8192)


def test_published_flops_of_adapters_leave_weight_gradients_out():
    """NVIDIA's tables print TFLOP/s or MFU beside tokens/s of LoRA: the count is that of frozen weights."""
    table = Path(__file__).parents[2] / "benchmarks/data/published_training.csv"
    with table.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if "lora" in row["model"].lower()]
    shares = {}
    for row in rows:
        speed, flops, share = (number(row[name]) for name in ("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu"))
        shape = shape_of_row(row)
        if shape is None or not speed or not (flops or share):
            continue
        peak = 1979e12 if row["precision"] == "fp8" else 989e12  # as the notes of those rows say
        printed = (flops * 1e12 if flops else (share or 0.0) * peak) / speed
        shares[row["id"]] = flops_of_source(row, shape, int(row["seq_len"])) / printed
    assert len(shares) == 19
    assert all(0.99 < value < 1.01 for value in shares.values()), shares
