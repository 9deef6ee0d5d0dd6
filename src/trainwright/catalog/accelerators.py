"""What one GPU or Neuron chip can do: peaks, memory, links. Peak rates are the trainer's (train/peaks.csv), so that
both sides divide by the same number; the rest is in data/accelerators.csv."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.tables import cached, shipped_table
from trainwright.errors import UserError, did_you_mean
from trainwright.train.flops import TERA, peak_rates

TRAINS = "use trn1, trn2, inf2 or a GPU"  # instead of a chip that only infers


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One chip. Peaks are dense TFLOP/s; 0 means the hardware has no such unit (bf16 on V100 and T4)."""

    name: str
    maker: str
    title: str
    arch: str
    bf16_tflops: float
    fp16_tflops: float
    fp8_tflops: float
    fp4_tflops: float
    fp32_tflops: float
    memory_gib: float
    memory_gb_s: float
    nvlink_gb_s: float  # one way, all links of one chip together; NeuronLink for AWS chips; 0: PCIe only
    nvlinks: int
    nvls: bool  # the switch between the chips can reduce, so an all-reduce sends its data once
    mamf_bf16_tflops: float | None  # the fastest matmul measured: the realistic ceiling
    mamf_fp8_tflops: float | None
    tdp_watts: int
    source: str

    @property
    def is_neuron(self) -> bool:
        return self.arch.startswith("neuron")

    @property
    def only_infers(self) -> bool:
        """Neuron trains from its second generation on."""
        return self.arch == "neuron-v1"


@cached
def accelerators() -> tuple[Accelerator, ...]:
    return tuple(_accelerator(row) for row in shipped_table("accelerators.csv").records())


def find_accelerator(name: str) -> Accelerator | None:
    """By key (`h100`), in any case."""
    return _by_name().get(name.lower())


def accelerator_named(torch_name: str) -> Accelerator | None:
    """The catalog's chip for what torch calls a device (`NVIDIA H100 80GB HBM3`); memory tells variants apart."""
    words = torch_name.upper().replace("-", " ").split()
    matches = [chip for chip in accelerators() if chip.title.upper().split()[0] in words and chip.maker == "NVIDIA"]
    exact = [
        chip for chip in matches if any(word in words for word in chip.title.upper().split() if word.endswith("GB"))
    ]
    return next(iter(exact or matches), None)


def accelerator(name: str) -> Accelerator:
    chip = find_accelerator(name)
    if chip is None:
        raise UserError(
            f"no accelerator {name!r} in the catalog",
            fix=did_you_mean(name, _by_name()) or "`trainwright catalog list --kind accelerators` names them all",
        )
    return chip


@cached
def _by_name() -> dict[str, Accelerator]:
    return {chip.name: chip for chip in accelerators()}


@cached
def key_of_ec2_name(ec2_name: str, memory_mib: int) -> str | None:
    """The catalog key for what DescribeInstanceTypes calls a chip; memory tells an A100-40 from an A100-80."""
    rows = [row for row in shipped_table("accelerators.csv").records() if row["ec2_name"] == ec2_name]
    exact = [row["name"] for row in rows if row["ec2_memory_mib"] == str(memory_mib)]
    return next(iter(exact or [row["name"] for row in rows]), None)


def _accelerator(row: dict[str, str]) -> Accelerator:
    def number(column: str) -> float:
        return float(row[column] or 0)

    def measured(column: str) -> float | None:
        return float(row[column]) if row[column] else None

    peaks = peak_rates()[row["name"]]
    return Accelerator(
        name=row["name"],
        maker=row["maker"],
        title=row["title"],
        arch=row["arch"],
        bf16_tflops=peaks.bf16 / TERA,
        fp16_tflops=peaks.fp16 / TERA,
        fp8_tflops=peaks.fp8 / TERA,
        fp4_tflops=peaks.fp4 / TERA,
        fp32_tflops=peaks.fp32 / TERA,
        memory_gib=number("memory_gib"),
        memory_gb_s=number("memory_gb_s"),
        nvlink_gb_s=number("nvlink_gb_s"),
        nvlinks=int(row["nvlinks"] or 0),
        nvls=row["nvls"] == "yes",
        mamf_bf16_tflops=measured("mamf_bf16_tflops"),
        mamf_fp8_tflops=measured("mamf_fp8_tflops"),
        tdp_watts=int(row["tdp_watts"] or 0),
        source=row["source"],
    )
