"""The predictor's constants, read from constants.toml, which gives the unit and the evidence of each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

CONSTANTS_FILE = Path(__file__).with_name("constants.toml")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved per element of one fusion level: (forward, backward)."""

    norm: tuple[float, float]
    residual: tuple[float, float]
    rope: tuple[float, float]
    gated: tuple[float, float]
    plain: tuple[float, float]
    loss: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Constants:
    """One set of constants. A fit or a user's calibration replaces some of them."""

    matmul_sustained_ampere: float
    matmul_sustained_hopper: float
    matmul_sustained_blackwell: float
    matmul_sustained_neuron: float
    early_kernels: float
    matmul_k_half: float
    matmul_start: float
    unfused_bytes: float
    matmul_unmeasured_fp8: float
    matmul_unmeasured_bf16: float
    matmul_fp4: float
    clock_power_exponent: float
    attention_seq_half_forward: float
    attention_seq_half_backward: float
    attention_narrow_head: float
    memory_efficiency: float
    optimizer_bytes_fused: float
    optimizer_bytes_foreach: float
    launch_eager: float
    overlap_contention: float
    gather_contention: float
    overlap_reach: float
    tp_overlap_hidden: float
    async_tp_hidden: float
    fp8_cast_bytes: float
    fp8_cast_bytes_compiled: float
    fp8_rowwise: float
    fp8_rowwise_own: float
    fp8_blockwise: float
    step_fixed: float
    straggler_doubling: float
    grouped_matmul: float
    expert_imbalance: float
    expert_permute_bytes: float
    expert_kernels: float
    alltoall_exposed: float
    fragmentation: float
    context_gib: float
    traffic: dict[str, Traffic]
    attention: dict[tuple[str, str], tuple[float, float]]
    calibrated_by_runs: frozenset[str] = frozenset()  # GPU generations of which the user's own runs were seen

    def with_values(self, **values: float) -> Constants:
        return replace(self, **values)  # type: ignore[arg-type]


@cache
def table() -> dict[str, Any]:
    """The raw file, with units and reasons, for the documentation and the tests."""
    return tomllib.loads(CONSTANTS_FILE.read_text(encoding="utf-8"))


def scalar_names() -> list[str]:
    """The constants that are one number each."""
    return [f.name for f in fields(Constants) if f.name not in ("traffic", "attention", "calibrated_by_runs")]


@cache
def constants() -> Constants:
    """The shipped set."""
    raw = table()
    scalars = {name: float(raw[name]["value"]) for name in scalar_names()}
    ops = [f.name for f in fields(Traffic)]
    traffic = {level: Traffic(**{op: tuple(row[op]) for op in ops}) for level, row in raw["traffic"].items()}
    attention = {
        (kernel, arch): (float(row["rate"][0]), float(row["rate"][1]))
        for kernel, by_arch in raw["attention"].items()
        for arch, row in by_arch.items()
    }
    return Constants(**scalars, traffic=traffic, attention=attention, calibrated_by_runs=frozenset())
