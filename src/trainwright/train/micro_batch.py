"""Chooses the micro-batch of a run on GPUs where the user gives none: the largest one that fits in memory.

Peak memory is measured with one and with two samples; the difference is what each further sample should need. A choice
below the whole share is measured too, and asked again: the first samples cost more than the later ones. The choice is
the same on every rank, and kept in the run folder, so that a resumed run has the same micro-batches."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainwright.train.config import TrainConfig
from trainwright.train.data.format import write_durably
from trainwright.train.data.loader import Loader, Samples
from trainwright.train.engine import Engine
from trainwright.train.loss import CHUNK_BYTES
from trainwright.train.world import World, broadcast_from_first

FILE = "micro_batch.json"
CGROUP = Path("/sys/fs/cgroup")
USABLE_HOST = 0.8  # of the host memory that is available: loaders and checkpoints need the rest
USABLE = 0.9  # of the memory that is free for this process: fragmentation and the optimizer step need the rest
# What memory depends on; a choice made for other values is not reused.
DEPENDS_ON = (
    "model", "sequence", "batch", "parallel", "precision", "compile", "recompute", "offload_activations",
    "offload_optimizer", "isolate",
)  # fmt: skip


def choose_micro_batch(config: TrainConfig, engine: Engine, samples: Samples, world: World, folder: Path) -> int:
    """The micro-batch of this run: the given one, the one chosen at an earlier start, or the largest that fits."""
    share = config.batch // engine.data_world
    if config.micro_batch or share == 1 or engine.plan.pp > 1 or world.device.type != "cuda":
        return config.micro_batch or 1  # more micro-batches make a pipeline's bubble smaller
    situation = {key: getattr(config, key) for key in DEPENDS_ON}
    situation |= {"ranks": world.size, "device": torch.cuda.get_device_name(world.device)}
    known = int(broadcast_from_first(world, str(earlier_choice(folder, situation)) if world.first else ""))
    if known and share % known == 0:
        return known
    chosen, facts = measured_choice(engine, samples, share, world)
    if world.first:
        folder.mkdir(parents=True, exist_ok=True)
        content = {"micro_batch": chosen, "measured_gib": facts, "for": situation}
        write_durably(folder / FILE, (json.dumps(content, indent=1) + "\n").encode())
    return chosen


def earlier_choice(folder: Path, situation: dict[str, Any]) -> int:
    """The choice of an earlier start in the same situation; 0 where there is none."""
    try:
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return int(kept["micro_batch"]) if kept["for"] == json.loads(json.dumps(situation)) else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def measured_choice(engine: Engine, samples: Samples, share: int, world: World) -> tuple[int, dict[str, float]]:
    free, _ = torch.cuda.mem_get_info(world.device)
    limit = USABLE * (free + torch.cuda.memory_reserved(world.device))
    host_limit = USABLE_HOST * available_host_memory() / torch.cuda.device_count()
    # With several micro-batches, bf16 gradients are added up in fp32; small losses grow to a full chunk of logits.
    halves = [] if engine.layout.sharded else [p for p in engine.params.values() if p.dtype != torch.float32]
    sums = sum(4 * p.numel() for p in halves)
    peaks = {size: peak_memory(engine, samples, size) for size in (1, 2)}

    def memory(size: int) -> float:
        fewer, more = sorted(peaks)[-2:]
        on_gpu, on_host = (
            peaks[more][k] + (size - more) * (peaks[more][k] - peaks[fewer][k]) / (more - fewer) for k in (0, 1)
        )
        return math.inf if on_host > host_limit else on_gpu + (sums if size < share else 0) + CHUNK_BYTES

    while (fits := smallest_of_all(largest_fit(share, memory, limit), world)) < share and fits > max(peaks):
        peaks[fits] = peak_memory(engine, samples, fits)
    facts = {f"samples_{size}": gpu / 2**30 for size, (gpu, _) in peaks.items()} | {"limit": limit / 2**30}
    if engine.offload is not None:
        facts |= {f"host_samples_{size}": host / 2**30 for size, (_, host) in peaks.items()}
        facts["host_limit"] = host_limit / 2**30
    torch.compiler.reset()  # graphs of the measured sizes
    gc.collect()
    torch.cuda.empty_cache()
    return fits, {name: round(value, 2) for name, value in facts.items()}


def largest_fit(share: int, memory: Callable[[int], float], limit: float) -> int:
    """The largest divisor of a rank's share of the batch whose memory is within the limit; 1 where none is."""
    return max((size for size in range(1, share + 1) if share % size == 0 and memory(size) <= limit), default=1)


def peak_memory(engine: Engine, samples: Samples, size: int) -> tuple[int, int]:
    """Bytes at the peak of one forward and backward pass with `size` samples, on the GPU and of activations in host
    memory; the weights stay as they were."""
    loader = Loader(samples, size * engine.data_world, size, engine.data_rank, engine.data_world, pin=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(engine.device)
    engine.forward_backward(loader.step(0).microbatches)
    torch.cuda.synchronize(engine.device)
    peak = torch.cuda.max_memory_allocated(engine.device)
    engine.discard()
    if engine.offload is None:
        return peak, 0
    host = engine.offload.host_bytes
    engine.offload.release()
    return peak, host


def available_host_memory() -> float:
    """Bytes of this machine, or of the container this process runs in, that are not in use."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    available = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    try:
        most, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return available
    return min(available, most - used)


def smallest_of_all(size: int, world: World) -> int:
    """The smallest of the ranks' sizes, on every rank."""
    if world.size == 1:
        return size
    import torch.distributed as dist

    sizes: list[int] = [0] * world.size
    dist.all_gather_object(sizes, size)
    return min(sizes)
