"""Times a collective over a range of sizes the way nccl-tests does: warm up, a timed batch, one checked call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from trainwright.bench.message import Message
from trainwright.bench.operations import Buffers, Group, Operation, element_count, fill, make_buffers, wrong_elements

GB = 1e9
DTYPES = {
    "float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64,
    "int8": torch.int8, "uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timing:
    """One form of one size. `seconds` is the mean call on the slowest rank."""

    seconds: float
    algbw: float  # GB/s, 1e9 bytes per second
    busbw: float
    wrong: int


@dataclass(frozen=True, slots=True)
class Row(Message):
    """One line of the table: a collective at one size, out of place and in place where torch has both."""

    out_of_place: Timing | None
    in_place: Timing | None
    groups: dict[str, float] = field(default_factory=dict)  # split communicators: bus bandwidth of each

    @property
    def busbw(self) -> float:
        """The better form; torch adds a copy to one of them."""
        return max(form.busbw for form in (self.out_of_place, self.in_place) if form)


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What to measure: sizes in bytes, how often, in which forms."""

    low: int = 1 << 10
    high: int = 1 << 26
    factor: int = 2
    iterations: int = 20
    warmup: int = 5
    dtype: str = "float"
    check: bool = True
    forms: tuple[str, ...] = ("out-of-place", "in-place")
    max_seconds: float = 0.0  # of one timed batch; 0: no limit

    def sizes(self) -> Iterator[int]:
        size = self.low
        while size <= self.high:
            yield size
            size *= self.factor


def sweep(op: Operation, options: SweepOptions, group: Group, device: torch.device) -> Iterator[Row]:
    """One row per size. Sizes that round to the same number of elements are measured once."""
    dtype, seen = DTYPES[options.dtype], 0
    for size in options.sizes():
        count = element_count(op, size, dtype, group.size)
        if count != seen:
            seen = count
            yield measure(op, count * dtype.itemsize, options, group, device)


def measure(op: Operation, size: int, options: SweepOptions, group: Group, device: torch.device) -> Row:
    """One size, in every form the collective has."""
    count = element_count(op, size, DTYPES[options.dtype], group.size)
    forms: dict[str, Timing | None] = {"out-of-place": None, "in-place": None}
    rates: dict[str, float] = {}
    for form, possible in (("out-of-place", op.out_of_place), ("in-place", op.in_place)):
        if possible and form in options.forms:
            forms[form], by_group = _timed(op, size, options, group, device, form == "in-place")
            rates = {name: max(rate, rates.get(name, 0.0)) for name, rate in by_group.items()}
    redop, root = "sum" if op.reduces else "none", group.root if op.rooted else -1
    return Row(op.name, size, count, options.dtype, redop, root, forms["out-of-place"], forms["in-place"], rates)


def _timed(
    op: Operation, size: int, options: SweepOptions, group: Group, device: torch.device, same: bool
) -> tuple[Timing, dict[str, float]]:
    buffers = make_buffers(op, size, DTYPES[options.dtype], device, group, same)
    mean = mean_seconds(op, buffers, options, group, device)
    wrong = _checked(op, buffers, group, device) if options.check else 0
    seconds, total_wrong, by_group = _gathered(mean, wrong, group, device)
    rates = {name: _busbw(op, size, value, group) for name, value in by_group.items()}
    algbw = size / seconds / GB
    return Timing(seconds, algbw, algbw * op.bus(group.size), total_wrong), rates


def mean_seconds(op: Operation, buffers: Buffers, options: SweepOptions, group: Group, device: torch.device) -> float:
    """Mean time of one call on this rank; all ranks start together."""
    call, source, result = op.call, buffers.source, buffers.result
    for _ in range(options.warmup):
        call(source, result, group)
    iterations = options.iterations
    if options.max_seconds:
        iterations = _affordable(op, buffers, options, group, device)
    _synchronize(device)
    dist.barrier(group.handle)
    began = time.perf_counter()
    for _ in range(iterations):
        call(source, result, group)
    _synchronize(device)
    return (time.perf_counter() - began) / iterations


def _affordable(op: Operation, buffers: Buffers, options: SweepOptions, group: Group, device: torch.device) -> int:
    """As many calls as fit in the time limit, the same number on every rank."""
    _synchronize(device)
    dist.barrier(group.handle)
    began = time.perf_counter()
    op.call(buffers.source, buffers.result, group)
    _synchronize(device)
    slowest = torch.tensor([time.perf_counter() - began], device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group.handle)
    return max(1, min(options.iterations, int(options.max_seconds / max(slowest.item(), 1e-9))))


def _checked(op: Operation, buffers: Buffers, group: Group, device: torch.device) -> int:
    fill(buffers, group)
    _synchronize(device)
    op.call(buffers.source, buffers.result, group)
    _synchronize(device)
    return wrong_elements(op, buffers.result, group)


def _gathered(mean: float, wrong: int, group: Group, device: torch.device) -> tuple[float, int, dict[str, float]]:
    """The slowest rank's time and all wrong elements, over every communicator; with a split, the time of each."""
    own = torch.tensor([mean, float(wrong), float(group.ranks[0])], dtype=torch.float64, device=device)
    world = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(world, own)
    facts = torch.stack(world).tolist()
    by_group: dict[str, float] = {}
    if group.size < len(world):
        for seconds, _, first in facts:
            name = f"{first:.0f}"
            by_group[name] = max(seconds, by_group.get(name, 0.0))
    return max(f[0] for f in facts), int(sum(f[1] for f in facts)), by_group


def _busbw(op: Operation, size: int, seconds: float, group: Group) -> float:
    return size / seconds / GB * op.bus(group.size)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
