"""The collectives that are measured: the buffers each one needs, its call, the result it must give, its bus factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

ROOT = 0  # rank inside the group that broadcasts, reduces, gathers and scatters
STEP = 7  # between neighbouring elements of the test pattern
CHUNK = 1 << 24  # elements
RANK_STEP = 13  # between the patterns of two ranks

Call = Callable[[torch.Tensor, torch.Tensor, "Group"], Any]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one communicator: this process's place among them, and their numbers in the world."""

    rank: int
    ranks: tuple[int, ...]
    handle: Any = None  # the process group; None is the world

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def root(self) -> int:
        return self.ranks[ROOT]


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective. `source` and `result` say how many parts of size/n each buffer holds (0: all of `size`)."""

    name: str
    call: Call
    bus: Callable[[int], float]
    expected: Callable[[int, Group], tuple[str, int]]  # part -> ("sum", part), ("rank r", part) or ("any", 0)
    source_parts: int = 0
    result_parts: int = 0
    reduces: bool = False
    rooted: bool = False
    split: bool = False  # the size is divided among the ranks
    in_place: bool = True
    out_of_place: bool = True


def _single(new: str, old: str) -> Callable[..., Any]:
    """torch renamed the one-tensor collectives in 2.13."""
    return getattr(dist, new, None) or getattr(dist, old)


def _parts(buffer: torch.Tensor, group: Group) -> list[torch.Tensor]:
    return list(buffer.chunk(group.size))


def _all_reduce(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    if source is not result:
        result.copy_(source)  # torch has no out-of-place form: the copy belongs to the price of one
    dist.all_reduce(result, group=group.handle)


def _reduce(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    if source is not result:
        result.copy_(source)
    dist.reduce(result, group.root, group=group.handle)


def _broadcast(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    dist.broadcast(result, group.root, group=group.handle)


def _all_gather(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    _single("all_gather_single", "all_gather_into_tensor")(result, source, group=group.handle)


def _reduce_scatter(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    _single("reduce_scatter_single", "reduce_scatter_tensor")(result, source, group=group.handle)


def _all_to_all(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    dist.all_to_all_single(result, source, group=group.handle)


def _gather(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    parts = _parts(result, group) if group.rank == ROOT else None
    dist.gather(source, parts, group.root, group=group.handle)


def _scatter(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    parts = _parts(source, group) if group.rank == ROOT else None
    dist.scatter(result, parts, group.root, group=group.handle)


def _send_recv(source: torch.Tensor, result: torch.Tensor, group: Group) -> None:
    after, before = group.ranks[(group.rank + 1) % group.size], group.ranks[group.rank - 1]
    ops = [
        dist.P2POp(dist.isend, source, after, group.handle),
        dist.P2POp(dist.irecv, result, before, group.handle),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def _only_root(rule: Callable[[int, Group], tuple[str, int]]) -> Callable[[int, Group], tuple[str, int]]:
    return lambda part, group: rule(part, group) if group.rank == ROOT else ("any", 0)


def _ring(ranks: int) -> float:
    return (ranks - 1) / ranks


def _one(ranks: int) -> float:
    return 1.0


# The bus factors are those of nccl-tests: bytes that must cross the slowest link of a rank, per byte of `size`.
OPERATIONS: dict[str, Operation] = {
    op.name: op
    for op in (
        Operation("all_reduce", _all_reduce, lambda n: 2 * _ring(n), lambda p, g: ("sum", p), reduces=True),
        Operation(
            "all_gather", _all_gather, _ring, lambda p, g: (f"rank {p}", 0), source_parts=1, split=True,
        ),
        Operation(
            "reduce_scatter", _reduce_scatter, _ring, lambda p, g: ("sum", g.rank), result_parts=1, reduces=True,
            split=True,
        ),
        Operation("broadcast", _broadcast, _one, lambda p, g: (f"rank {ROOT}", p), rooted=True, out_of_place=False),
        Operation("reduce", _reduce, _one, _only_root(lambda p, g: ("sum", p)), reduces=True, rooted=True),
        Operation("all_to_all", _all_to_all, _ring, lambda p, g: (f"rank {p}", g.rank), split=True, in_place=False),
        Operation("send_recv", _send_recv, _one, lambda p, g: (f"rank {(g.rank - 1) % g.size}", p), in_place=False),
        Operation(
            "gather", _gather, _ring, _only_root(lambda p, g: (f"rank {p}", 0)), source_parts=1, rooted=True,
            split=True, in_place=False,
        ),
        Operation(
            "scatter", _scatter, _ring, lambda p, g: (f"rank {ROOT}", g.rank), result_parts=1, rooted=True, split=True,
            in_place=False,
        ),
    )
}  # fmt: skip


def modulus(dtype: torch.dtype, ranks: int) -> int:
    """How many different values the pattern has, such that a sum over all ranks is still exact in `dtype`."""
    if dtype.is_floating_point:
        exact = int(2 / torch.finfo(dtype).eps)
    else:
        exact = torch.iinfo(dtype).max
    return max(2, min(61, exact // ranks))


def pattern(like: torch.Tensor, ranks: int, rank: int, start: int) -> torch.Tensor:
    """What `rank` contributes from element `start` on: small whole numbers that differ by place and rank."""
    values = modulus(like.dtype, ranks)
    return _tiled(((torch.arange(values) + start) * STEP + rank * RANK_STEP) % values, like)


def summed(like: torch.Tensor, ranks: int, start: int) -> torch.Tensor:
    """The sum of every rank's pattern."""
    values = modulus(like.dtype, ranks)
    place = (torch.arange(values) + start) * STEP
    row = sum(((place + rank * RANK_STEP) % values for rank in range(ranks)), torch.zeros(values, dtype=torch.int64))
    return _tiled(row, like)


def _tiled(row: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    small = row.to(device=like.device, dtype=like.dtype)
    return small.repeat(-(-like.numel() // len(row)))[: like.numel()]


def _chunks(buffer: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Pieces with their offset, so that checking a buffer of 16 GiB does not need another 16 GiB."""
    return ((at, buffer[at : at + CHUNK]) for at in range(0, buffer.numel(), CHUNK))


def wrong_elements(op: Operation, result: torch.Tensor, group: Group) -> int:
    """How many elements of `result` differ from what the collective must have put there."""
    parts = group.size if op.split and op.result_parts == 0 else 1
    share = result.numel() // parts
    wrong = 0
    for part in range(parts):
        kind, source_part = op.expected(part, group)
        if kind == "any":
            continue
        # Where the source was divided, part p of a rank's own buffer starts at p shares.
        start = source_part * share if op.split else 0
        for offset, piece in _chunks(result[part * share : (part + 1) * share]):
            if kind == "sum":
                expected = summed(piece, group.size, start + offset)
            else:
                expected = pattern(piece, group.size, int(kind.split()[1]), start + offset)
            wrong += int((piece != expected).sum())
    return wrong


@dataclass(frozen=True, slots=True)
class Buffers:
    """What one rank hands to the collective, in one of the two forms."""

    source: torch.Tensor
    result: torch.Tensor


def make_buffers(
    op: Operation, size: int, dtype: torch.dtype, device: torch.device, group: Group, same: bool
) -> Buffers:
    """Buffers for `size` bytes (rounded down to whole shares); `same`: in place, one is part of the other."""
    elements = element_count(op, size, dtype, group.size)
    share = elements // group.size
    sizes = [share if parts else elements for parts in (op.source_parts, op.result_parts)]
    source = torch.zeros(sizes[0], dtype=dtype, device=device)
    if not same:
        return Buffers(source, torch.zeros(sizes[1], dtype=dtype, device=device))
    if sizes[0] == sizes[1]:
        return Buffers(source, source)
    whole = torch.zeros(elements, dtype=dtype, device=device)
    own = whole[group.rank * share : (group.rank + 1) * share]
    return Buffers(own, whole) if op.source_parts else Buffers(whole, own)


def element_count(op: Operation, size: int, dtype: torch.dtype, ranks: int) -> int:
    """Elements in `size` bytes; where the ranks divide them, a whole number each."""
    elements = max(1, size // dtype.itemsize)
    return max(1, elements // ranks) * ranks if op.split else elements


def fill(buffers: Buffers, group: Group) -> None:
    """Put this rank's pattern into the source, and a value it never has into a result of its own."""
    if buffers.result is not buffers.source:
        buffers.result.fill_(99)
    for offset, piece in _chunks(buffers.source):
        piece.copy_(pattern(piece, group.size, group.rank, offset))
