"""Names the rank that delays a synchronous job, and why: it waits for data, computes slowly, or its link is slow.
Reads `timings.jsonl`, which the watcher (`health/watch.py`) writes while a job trains.

Every rank ends a synchronous step at the same moment, so step times alone name nobody. What differs is what a rank does
by itself: the wait for its loader, the time of a fixed piece of work, the time of a megabyte from a neighbour."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = "timings.jsonl"
WINDOW, LEAST = 5, 3  # measurements that are looked at, and how many there must be before anyone is named
DATA_SHARE = 0.1  # of a step, more than the others wait
COMPUTE_FACTOR = 1.25  # the same work, so much longer than on the median rank
LINK_FACTOR, LINK_LEAST = 2.0, 0.0002  # times the usual, and seconds more


@dataclasses.dataclass(frozen=True)
class Straggler:
    """One rank, or one link, that delays the job."""

    rank: int
    host: str
    cause: str  # data, compute or network
    factor: float  # how many times slower than the others
    message: str


@dataclasses.dataclass(frozen=True)
class Timings:
    """One measurement of all ranks; every list has a number for each rank."""

    step: int
    hosts: tuple[str, ...]
    step_s: tuple[float, ...]
    data_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    from_previous_s: tuple[float, ...]  # a megabyte from the rank before, and from the rank after
    from_next_s: tuple[float, ...]


def read(folder: Path) -> list[Timings]:
    """The measurements of a run; a last line that a kill cut off is left out."""
    path = folder / FILE
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            rows.append(timings_of(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def timings_of(row: Mapping[str, Any]) -> Timings:
    """ValueError where a list lacks a rank or holds something else than times."""
    names = [field.name for field in dataclasses.fields(Timings) if field.name not in ("step", "hosts")]
    times = [tuple(float(value) for value in row[name]) for name in names]
    hosts = tuple(map(str, row["hosts"]))
    if any(len(values) != len(hosts) or not all(map(math.isfinite, values)) for values in times):
        raise ValueError("not a time for each rank")
    return Timings(int(row["step"]), hosts, *times)


def find(rows: Sequence[Timings]) -> list[Straggler]:
    """The stragglers of the last measurements, the worst first; nobody before there are enough of them."""
    recent = [row for row in rows[-WINDOW:] if len(row.hosts) == len(rows[-1].hosts)]
    if len(recent) < LEAST or len(recent[0].hosts) < 2:
        return []
    hosts = recent[-1].hosts
    usual = {name: _medians(recent, name) for name in ("step_s", "data_s", "compute_s")}
    stragglers = _data(hosts, usual["data_s"], usual["step_s"]) + _compute(hosts, usual["compute_s"])
    # A rank that computes slowly also answers late; its links are not to blame.
    slow = {one.rank for one in stragglers if one.cause == "compute"}
    stragglers += _network(hosts, _medians(recent, "from_previous_s"), _medians(recent, "from_next_s"), slow)
    return sorted(stragglers, key=lambda one: -one.factor)


def _medians(rows: Sequence[Timings], name: str) -> list[float]:
    return [statistics.median(values) for values in zip(*(getattr(row, name) for row in rows), strict=True)]


def _others(values: Sequence[float], rank: int) -> float:
    return statistics.median([*values[:rank], *values[rank + 1 :]])


def _data(hosts: Sequence[str], waits: Sequence[float], steps: Sequence[float]) -> list[Straggler]:
    stragglers = []
    for rank, wait in enumerate(waits):
        others = _others(waits, rank)
        if wait - others > DATA_SHARE * statistics.median(steps):
            factor = steps[rank] / max(steps[rank] - (wait - others), 1e-9)
            message = f"waits {wait:.3f} s per step for data, the others {others:.3f} s"
            stragglers.append(Straggler(rank, hosts[rank], "data", factor, message))
    return stragglers


def _compute(hosts: Sequence[str], times: Sequence[float]) -> list[Straggler]:
    stragglers = []
    for rank, time in enumerate(times):
        factor = time / max(_others(times, rank), 1e-9)
        if factor > COMPUTE_FACTOR:
            stragglers.append(Straggler(rank, hosts[rank], "compute", factor, f"computes {factor:.1f} times slower"))
    return stragglers


def _network(
    hosts: Sequence[str], from_previous: Sequence[float], from_next: Sequence[float], slow_ranks: set[int]
) -> list[Straggler]:
    """Slow links between hosts. A host whose every link out (or in) is slow is itself slow; else it is the link."""
    size = len(hosts)
    links: dict[tuple[int, int], list[float]] = {}
    for rank in range(size):
        for sender, seconds in (((rank - 1) % size, from_previous[rank]), ((rank + 1) % size, from_next[rank])):
            if hosts[sender] != hosts[rank] and not {sender, rank} & slow_ranks:
                links.setdefault((sender, rank), []).append(seconds)
    times = {link: statistics.median(seconds) for link, seconds in links.items()}
    if len(times) < 2:
        return []
    faster_half = sorted(times.values())[: (len(times) + 1) // 2]
    normal = statistics.median(faster_half)
    slow = {link for link, time in times.items() if time > LINK_FACTOR * normal and time - normal > LINK_LEAST}
    stragglers: list[Straggler] = []
    explained: set[tuple[int, int]] = set()
    for end, word in ((0, "sends"), (1, "receives")):
        for rank in sorted({link[end] for link in slow}):
            mine = {link for link in times if link[end] == rank}
            if mine <= slow and (len(mine) > 1 or len(times) == 2) and not mine <= explained:
                explained |= mine
                factor = statistics.median(times[link] for link in mine) / max(normal, 1e-9)
                message = f"{word} {factor:.1f} times slower than others"
                stragglers.append(Straggler(rank, hosts[rank], "network", factor, message))
    for sender, rank in sorted(slow - explained):
        factor = times[sender, rank] / max(normal, 1e-9)
        message = f"the link to rank {rank} on {hosts[rank]} is {factor:.1f} times slower than others"
        stragglers.append(Straggler(sender, hosts[sender], "network", factor, message))
    return stragglers


def describe(one: Straggler) -> str:
    return f"straggler: rank {one.rank} on {one.host} {one.message}"
