"""What one GPU and its links can do: peak rates of train/flops.py, the catalog's facts, and a few of our own."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.catalog.accelerators import TRAINS, accelerators, find_accelerator
from trainwright.catalog.instances import InstanceType, instance
from trainwright.errors import UserError, did_you_mean
from trainwright.predict.constants import Constants
from trainwright.train.flops import TERA, peak_rates

HERE = Path(__file__).parent
GB = 1e9
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. Rates are per second; peaks are dense."""

    name: str
    arch: str
    bf16: float
    fp8: float
    fp4: float
    best_bf16: float  # the best matmul rate ever published, 0 where there is none
    best_fp8: float
    memory: float  # bytes
    bandwidth: float
    nvlink: float  # one way, all links together; 0: PCIe only
    domain: int  # accelerators that reach one another over NVLink
    sms: int
    watts: float
    rated_watts: float  # the power limit at which best_bf16 and best_fp8 were measured
    ranks: int = 1  # ranks per chip; every other field is one rank's share

    @property
    def host_rate(self) -> float:
        """Bytes/s between the device and pinned host memory, one way."""
        return HOST_GB_S.get(self.family, PCIE_GB_S.get(self.family, PCIE_4_GB_S)) * GB

    @property
    def family(self) -> str:
        """The kernel family: sm_103 runs what sm_100 runs, sm_86 and sm_89 what sm_80 runs."""
        if self.arch.startswith("neuron"):
            return "neuroncore"
        major = self.arch.removeprefix("sm_")
        return {"86": "sm_80", "89": "sm_80", "103": "sm_100", "120": "sm_100", "75": "sm_70"}.get(major, self.arch)

    def clock(self, c: Constants) -> float:
        """The clock under the power limit, as a share of the clock at which the matmul rate was measured."""
        return float((self.watts / self.rated_watts) ** c.clock_power_exponent) if self.watts else 1.0

    def sustained(self, c: Constants) -> float:
        """Share of the best matmul rate that a long run sustains, by generation."""
        if self.family == "sm_90":
            return c.matmul_sustained_hopper
        if self.family == "neuroncore":
            return c.matmul_sustained_neuron
        return c.matmul_sustained_blackwell if self.family == "sm_100" else c.matmul_sustained_ampere

    def matmul_rate(self, precision: str, c: Constants) -> float:
        """FLOP/s that a large matrix product sustains in a training step."""
        return self.best_matmul(precision, c) * self.sustained(c) * self.clock(c)

    def best_matmul(self, precision: str, c: Constants) -> float:
        """FLOP/s of the fastest matrix product, before the power limit lowers the clock."""
        if precision == "fp4" and self.fp4:
            return self.fp4 * c.matmul_fp4
        if precision in ("fp8", "fp4") and self.fp8:
            return self.best_fp8 or self.fp8 * c.matmul_unmeasured_fp8
        if precision == "fp32":
            return self.bf16 / 2 * c.matmul_unmeasured_bf16  # TF32 runs at half the 16-bit rate
        return self.best_bf16 or self.bf16 * (1.0 if self.family == "neuroncore" else c.matmul_unmeasured_bf16)


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link; times in seconds, `rate` in bytes/s per rank."""

    name: str
    rate: float
    start: float
    hop: float
    pipeline: float
    ring_efficiency: float = 1.0
    reduce_efficiency: float = 1.0
    point_efficiency: float = 1.0
    start_per_doubling: float = 0.0
    pipeline_growth: float = 0.0
    alltoall_pipeline: float = 0.0
    alltoall_efficiency: float = 1.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices of one kind, in nodes, with the link inside a domain and the one between domains."""

    device: Device
    gpus: int
    per_node: int
    inside: Link
    between: Link
    instance: str = ""  # the EC2 type; empty for hardware that only a published table names
    host_memory: float = 0.0  # bytes per GPU; 0: not known

    @property
    def domain(self) -> int:
        """How many GPUs the inner link connects: a node, or a whole NVL72 rack."""
        return max(self.per_node, self.device.domain if self.device.domain > 8 else 1)

    @property
    def peers(self) -> int:
        """Peers of a GPU that is linked pair by pair, without a switch: boards of four, AMD's of eight. 0: switched."""
        if self.device.arch.startswith("gfx"):
            return 7
        return 3 if self.per_node == 4 and self.device.nvlink and self.domain == 4 else 0

    @property
    def nodes(self) -> int:
        return max(1, math.ceil(self.gpus / self.per_node))


@cache
def _fabrics() -> dict[str, dict[str, float]]:
    return tomllib.loads((HERE / "fabrics.toml").read_text(encoding="utf-8"))


@cache
def _extras() -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / "devices.toml").read_text(encoding="utf-8"))


@cache
def device(name: str) -> Device:
    """By catalog key (`h100`) or one of the chips devices.toml adds (`gb300`)."""
    extra = _extras().get(name, {})
    chip = find_accelerator(extra.get("like", name))
    if chip is None:
        known = sorted({*_extras(), *(a.name for a in accelerators())})
        raise UserError(f"no accelerator {name!r}", fix=did_you_mean(name, known) or f"one of {', '.join(known)}")
    base = {**_extras().get(chip.name, {}), **extra}
    peaks = peak_rates()[name]
    same = peaks.mfu == peak_rates()[chip.name].mfu  # else what was measured on that chip says nothing of this one
    ranks = int(base.get("ranks", 1))
    return Device(
        name=name,
        arch=str(base.get("arch", chip.arch)),
        bf16=peaks.mfu / ranks,
        fp8=peaks.fp8 / ranks,
        fp4=peaks.fp4 / ranks,
        best_bf16=(chip.mamf_bf16_tflops or 0) * TERA if same else 0.0,
        best_fp8=(chip.mamf_fp8_tflops or 0) * TERA if same else 0.0,
        memory=float(base.get("memory_gib", chip.memory_gib)) * GIB / ranks,
        bandwidth=float(base.get("memory_gb_s", chip.memory_gb_s)) * GB / ranks,
        nvlink=float(base.get("nvlink_gb_s", chip.nvlink_gb_s)) * GB / ranks,
        domain=int(base.get("domain", 8)) * ranks,
        sms=int(base.get("sms", 100)),
        watts=float(base.get("tdp_watts", chip.tdp_watts)),
        rated_watts=float(chip.tdp_watts),
        ranks=ranks,
    )


def fabric(name: str, gb_s: float) -> Link:
    """A link of the kind `name` that carries `gb_s` GB/s per rank."""
    row = dict(_fabrics()[name])
    micro = {"start", "hop", "pipeline", "start_per_doubling", "alltoall_pipeline"}
    values = {key: value * 1e-6 if key in micro else value for key, value in row.items()}
    efficiency = values.pop("efficiency", None)
    if efficiency is not None:
        values |= {"ring_efficiency": efficiency, "reduce_efficiency": efficiency, "point_efficiency": efficiency}
    return Link(name=name, rate=gb_s * GB, **values)


PCIE_GB_S = {"sm_90": 55.0, "sm_100": 55.0, "sm_103": 55.0}  # of generation 5
PCIE_4_GB_S = 26.0
# Of copies alone, by benchmarks/activation_offload.py on an H200: 9.14 GiB of a layer in 175 ms.
HOST_GB_S = {"sm_90": 56.0}


def inner_link(chip: Device, per_node: int) -> Link:
    """NVLink where the device has it. Four GPUs of an HGX-4 board are linked pair by pair, without a switch."""
    if chip.family == "neuroncore":
        return fabric("neuronlink", chip.nvlink / GB)
    if not chip.nvlink:
        return fabric("pcie", PCIE_GB_S.get(chip.family, PCIE_4_GB_S))
    if chip.family == "sm_90" and per_node > 4:
        return fabric("nvlink", chip.nvlink / GB)
    if chip.family == "sm_100":
        return fabric("nvlink-5", chip.nvlink / GB)
    return fabric("nvlink-plain", chip.nvlink / GB)


def cluster_of(kind: InstanceType, nodes: int, per_node: int | None = None) -> Cluster:
    """A cluster of one EC2 instance type. `per_node`: a job with fewer processes than GPUs uses only so many."""
    if not kind.accelerator or not kind.accelerator_count:
        raise UserError(f"{kind.name} has no accelerator", fix="choose one of the p or g families")
    if (card := find_accelerator(kind.accelerator)) is not None and card.only_infers:
        raise UserError(f"{card.title} cannot train", where=kind.name, fix=TRAINS)
    chip = device(kind.accelerator)
    ranks = kind.accelerator_count * chip.ranks
    if kind.family in ("p4d", "p4de"):
        network = "efa-1"
    elif kind.family.startswith(("p5en", "p6")):
        network = "efa-3"
    else:
        network = "efa" if kind.efa_cards else "ethernet"
    per_rank = kind.network_gbps / 8 / ranks
    return Cluster(
        device=chip if kind.family.startswith("p6e") else replace(chip, domain=ranks),
        gpus=nodes * (per_node or ranks),
        per_node=per_node or ranks,
        inside=inner_link(chip, kind.accelerator_count),
        between=fabric(network, per_rank),
        instance=kind.name,
        host_memory=kind.memory_mib * 2**20 / (per_node or ranks),
    )


def cluster(instance_type: str, nodes: int, per_node: int | None = None) -> Cluster:
    return cluster_of(instance(instance_type), nodes, per_node)
