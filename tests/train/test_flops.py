"""Model FLOPs, MFU and peak rates: one definition for the trainer, the predictor and reports."""

import subprocess
import sys
from dataclasses import replace

import pytest

from trainwright.catalog.accelerators import accelerators
from trainwright.predict.constants import constants
from trainwright.predict.layout import lay_out
from trainwright.predict.objective import model_flops, objective_of
from trainwright.predict.request import PredictRequest
from trainwright.train.config import TrainConfig
from trainwright.train.flops import flops_per_token, keys_per_token, matmul_parameters, mfu, peak_rates, rates_of_device
from trainwright.train.models.shape import lookup, parameter_count
from trainwright.train.objectives.causal_lm import CausalLM
from trainwright.train.objectives.dpo import DirectPreference


def test_flops_of_a_llama_by_hand():
    """Llama 3 8B: per layer q and o (4096 x 4096), k and v (4096 x 1024), three MLP matrices; the head once."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    parameters = 32 * layer + 128256 * 4096
    assert matmul_parameters(lookup("llama3-8b")) == parameters
    assert flops_per_token(lookup("llama3-8b"), 8192) == 6 * parameters + 6 * 32 * 4096 * 8192


def test_a_tied_head_counts_and_the_embedding_table_does_not():
    shape = lookup("llama3.2-1b")
    assert matmul_parameters(shape) == matmul_parameters(replace(shape, tied=False))
    norms = 2 * 16 * 2048 + 2048
    assert matmul_parameters(shape) == parameter_count(shape) - norms


def test_only_active_experts_count():
    mixtral = lookup("mixtral-8x7b")
    dense = replace(mixtral, experts=0, experts_per_token=0)
    one_mlp = 3 * 4096 * 14336
    assert matmul_parameters(mixtral) - matmul_parameters(dense) == 32 * (one_mlp + 8 * 4096)


def test_layers_of_multi_token_prediction_count_where_they_are_trained():
    """DeepSeek V3 was published with one; our trainer has none of them, and says no FLOPs of it."""
    shape = lookup("deepseek-v3")
    without = replace(shape, mtp_layers=0)
    assert flops_per_token(shape, 4096) > 1.02 * flops_per_token(without, 4096)
    trained = CausalLM(shape, TrainConfig(model="deepseek-v3", sequence=4096)).flops_per_token()
    assert trained == flops_per_token(without, 4096)
    request = PredictRequest("deepseek-v3", "p5.48xlarge", 64, "shard=512,ep=64", sequence=4096)
    ours, others = (lay_out(replace(request, trainer=name), constants()) for name in ("trainwright", "megatron"))
    assert model_flops(ours.shape, 4096, ours.objective) == trained
    assert others.shape.mtp_layers == 1


def test_attention_is_counted_as_it_is_masked():
    full = lookup("mistral-7b")
    assert keys_per_token(full, 8192) == 4096
    windowed = lookup("mistral-7b-v0.1")  # a window of 4096
    exact = sum(min(position + 1, 4096) for position in range(8192)) / 8192
    assert keys_per_token(windowed, 8192) == pytest.approx(exact, rel=1e-3)
    assert keys_per_token(windowed, 2048) == 1024
    assert keys_per_token(lookup("bert-base"), 512) == 512


def test_preference_pairs_attend_within_one_answer():
    shape = lookup("llama3-8b")
    config = TrainConfig(model="llama3-8b", objective="dpo", base="x", sequence=4096)
    assert DirectPreference(shape, config).tokens_per_sample == 2 * 4096
    trained = DirectPreference(shape, config).flops_per_token()
    assert trained == pytest.approx(flops_per_token(shape, 4096) * 4 / 3)
    assert trained == pytest.approx(model_flops(shape, 4096, objective_of(shape, "dpo")))


def test_mfu_is_model_flops_over_the_peak_of_all_devices():
    assert mfu(1000.0, 2e9, 8 * 1e12) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("torch_name", "row"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_device_is_known_by_the_name_torch_gives(torch_name, row):
    rates = rates_of_device(torch_name)
    assert rates is not None
    assert rates.name == row
    assert rates.mfu > 0


@pytest.mark.parametrize("torch_name", ["NVIDIA L40", "NVIDIA GeForce RTX 3090", ""])
def test_an_unknown_device_has_no_peak(torch_name):
    assert rates_of_device(torch_name) is None


def test_the_catalog_shows_the_same_peaks():
    for chip in accelerators():
        rates = peak_rates()[chip.name]
        assert (chip.bf16_tflops * 1e12, chip.fp8_tflops * 1e12) == (rates.bf16, rates.fp8)


def test_the_control_side_reads_it_without_torch():
    code = "import sys, trainwright.train.flops, trainwright.catalog.accelerators; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
