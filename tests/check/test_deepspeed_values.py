"""DSP001 on values. Of each kind at least one sample was given to deepspeed.initialize of 0.19.8 beside torch 2.13."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def config(**sections: Any) -> str:
    return json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, **sections}, indent=1)


def optimizer(kind: str, **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": params}}


def offload(device: Any, name: str = "offload_optimizer") -> dict[str, Any]:
    return {"zero_optimization": {"stage": 3, name: {"device": device}}}


@pytest.mark.parametrize(
    ("sections", "level", "fix"),
    [
        (offload("gpu"), "error", "write none"),
        (offload("cuda", "offload_param"), "error", "write none"),
        (offload("CPU"), "error", "write cpu"),
        (offload("nvm"), "error", "write nvme"),
        (offload("disk"), "error", "write none, cpu or nvme"),
        (optimizer("AdamW", learning_rate=1e-4), "warning", "write lr"),
        (optimizer("Lamb", lr=1, epsilon=1e-8), "warning", "write eps"),
        (optimizer("Adam", lr=1, weight_decy=0), "warning", "write weight_decay"),
        (optimizer("Adam", max_grad_norm=1.0), "warning", "write gradient_clipping at the top of the file"),
        (optimizer("AdmaW", lr=1), "warning", "did you mean AdamW?"),
        (optimizer("OneBitAdm", lr=1), "warning", "did you mean OneBitAdam?"),
        (optimizer("sgd", lr=1), "warning", "did you mean SGD?"),
        ({"scheduler": {"type": "WarmupCosine", "params": {}}}, "warning", "did you mean WarmupCosineLR?"),
        ({"scheduler": {"type": "warmuplr", "params": {}}}, "warning", "did you mean WarmupLR?"),
        ({"scheduler": {"type": "CosineAnnealing", "params": {}}}, "warning", "did you mean CosineAnnealingLR?"),
    ],
)
def test_a_value_that_deepspeed_refuses_is_reported(run: Run, sections: dict[str, Any], level: str, fix: str) -> None:
    (finding,) = run("ds.json", config(**sections), "DSP001")
    assert (finding.level, finding.fix) == (level, fix)
    assert finding.why


@pytest.mark.parametrize(
    "sections",
    [
        offload("cpu"),
        offload("none"),
        offload("nvme", "offload_param"),
        offload("auto"),
        offload("${OFFLOAD}"),
        {"zero_optimization": {"stage": 2, "offload_optimizer": None}},
        optimizer("AdamW", lr="auto", betas="auto", eps="auto", weight_decay="auto", torch_adam=True),
        optimizer("adamW", lr=1e-4, adam_w_mode=True, bias_correction=False),
        optimizer("OneBitAdam", lr=1e-4, freeze_step=400, cuda_aware=False, comm_backend_name="nccl"),
        optimizer("ZeroOneAdam", lr=1, var_freeze_step=1000, local_step_scaler=8, of_somebody=1),
        optimizer("NAdam", lr=1, momentum_decay=0.004),
        optimizer("Muon", lr=1, momentum=0.9, muon_lr=1),
        optimizer("Adam8bit", learning_rate=1),  # of the script that makes it
        optimizer("CAdamW", lr=1),
        {"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 1}}},
        {"scheduler": {"type": "StepLR", "params": {"step_size": 3}}},
        {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1}}},
        {"scheduler": {"type": "of_the_script", "params": {}}},
        {"scheduler": {"type": "auto", "params": {}}},
    ],
)
def test_a_value_that_deepspeed_or_a_script_takes_is_not(run: Run, sections: dict[str, Any]) -> None:
    assert run("ds.json", config(**sections), "DSP001") == []


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: {device}
"""


@pytest.mark.parametrize(
    ("device", "kind", "count"),
    [("gpu", "DEEPSPEED", 1), ("cpu", "DEEPSPEED", 0), ("null", "DEEPSPEED", 0), ("gpu", "MULTI_GPU", 0)],
)
def test_the_device_of_an_accelerate_configuration(run: Run, device: str, kind: str, count: int) -> None:
    assert len(run("a.yaml", ACCELERATE.format(device=device, kind=kind), "DSP001")) == count
