"""What a job needs of storage: the bytes its data loaders read and its checkpoints write, against what there is."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.predict.adapters import trained_parameters
from trainwright.predict.memory import weights_of
from trainwright.predict.objective import head_parameters
from trainwright.predict.setup import Setup

TOKEN_BYTES = 4.0
IMAGE_BYTES = 110e3  # of a JPEG of ImageNet, on average
TEACHER_BYTES = 4.0  # DINO's teacher, in fp32
STATE_BYTES = 12.0  # per parameter: fp32 weights and two fp32 moments (14.8 GB measured for the 1.24 B of Llama 3.2 1B)
COPY_BYTES = 2.0  # trainers that keep 16-bit weights beside the fp32 ones save both
STAGING_GB_S = 8.0  # GPU to pinned host memory, per GPU, several ranks at once


@dataclass(frozen=True, slots=True)
class Needs:
    """Rates in GB/s for the whole job."""

    read_gb_s: float
    checkpoint_gb: float
    stall_s: float
    write_gb_s: float  # to finish one checkpoint in half the interval
    enough: bool | None  # compared with the storage given; None where none was
    advice: str


def data_needs(s: Setup, tokens_per_s: float, interval_s: float, storage_gb_s: float | None = None) -> Needs:
    """A checkpoint is copied to host memory, which stalls the step, and written to storage while training goes on."""
    size = checkpoint_gb(s)
    stall = stall_of(s)
    write = size / (0.5 * interval_s)
    each = IMAGE_BYTES / s.sample_tokens if s.shape.kind == "vision" else TOKEN_BYTES
    read = tokens_per_s * each / 1e9
    if storage_gb_s is None:
        return Needs(read, size, stall, write, None, "")
    enough = storage_gb_s >= write + read
    advice = (
        ""
        if enough
        else f"{storage_gb_s:.1f} GB/s is less than {write + read:.1f}: checkpoint every "
        f"{2 * size / max(storage_gb_s - read, 0.01) / 60:.0f} min, or raise the throughput"
    )
    return Needs(read, size, stall, write, enough, advice)


def checkpoint_gb(s: Setup) -> float:
    """Size of one checkpoint; FSDP keeps one copy of the weights, in fp32. Frozen weights are not saved."""
    if s.frozen:
        return trained_parameters(s) * STATE_BYTES / 1e9
    each = STATE_BYTES + (0.0 if s.profile.data == "fsdp" else COPY_BYTES)
    tables, plain, experts = weights_of(s.shape)
    each += TEACHER_BYTES if s.objective.name == "dino" else 0.0
    around = tables + head_parameters(s.shape, s.objective)
    return (around + s.shape.layers * (plain + experts)) * each / 1e9


def stall_of(s: Setup, size: float | None = None) -> float:
    """Seconds a step waits while its state (`size` GB, where that is computed) is copied to the host: each GPU copies
    its own part."""
    size = checkpoint_gb(s) if size is None else size
    owners = s.plan.tp * s.plan.pp * (s.plan.shard * s.plan.cp if s.zero else 1)
    return 1.0 + size / owners / STAGING_GB_S


MB_PER_TIB = (125, 250, 500, 1000)
TIB_STEP = 2.4
READ_GB_S = 0.015  # per GPU, below which `check` warns that GPUs may wait for data (STO003)


def file_system(s: Setup, checkpoint: float, interval_s: float) -> tuple[float, int]:
    """The smallest Lustre that holds three checkpoints (of so many GB) and writes one in time: (TiB, MB/s per TiB)."""
    write = max(checkpoint / (0.5 * interval_s), READ_GB_S * s.cluster.gpus)
    size = max(1, -(-3 * checkpoint / 1100 // TIB_STEP)) * TIB_STEP
    for throughput in MB_PER_TIB:
        if size * throughput / 1e3 >= write:
            return size, throughput
    return -(-write // (MB_PER_TIB[-1] / 1e3 * TIB_STEP)) * TIB_STEP, MB_PER_TIB[-1]
