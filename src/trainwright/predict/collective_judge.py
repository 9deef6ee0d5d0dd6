"""Judges measured collectives: a ceiling from physics, a floor from published runs of such systems, a verdict."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.predict import collectives
from trainwright.predict.collective_limits import Ceiling, Wires, bus_factor, ceiling, plain_wires, wires_of
from trainwright.predict.hardware import GB, Cluster, cluster_of, fabric

HERE = Path(__file__).parent
TOLERANCE = 0.8  # of the published efficiency: software versions and placement differ by up to 20 % between good runs
SMALLEST = 2**20  # below it latency decides, which differs too much between systems to be judged
SPREAD = 4  # the largest size and those down to a quarter of it decide
# Where nobody published the collective itself: one that moves the same bytes over each rank's links.
ALIKE = {
    "reduce_scatter": "all_gather",
    "all_gather": "reduce_scatter",
    "broadcast": "all_gather",
    "reduce": "all_gather",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One measured size of one collective."""

    op: str
    size: int
    busbw: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One size beside its limits, all GB/s of bus bandwidth."""

    size: int
    busbw: float
    ceiling: float
    floor: float
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """pass, fail, or skip with the reason; the numbers it rests on."""

    op: str
    status: str
    reason: str
    derivation: tuple[str, ...] = ()
    points: tuple[Judged, ...] = ()


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A fraction of the ceiling that somebody measured, and where that is written."""

    fraction: float
    source: str

    def __post_init__(self) -> None:
        # The one place a floor comes from: a value above 1 would ask for more than physics allows.
        if not 0 < self.fraction <= 1:
            raise ValueError(f"an efficiency of {self.fraction} from {self.source}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One published measurement as a part of its own system's ceiling."""

    network: str  # kind of wire that was the bottleneck, such as efa
    nodes: int
    op: str
    size: int
    fraction: float
    source: str


def judge(op: str, points: Sequence[Point], wires: Wires, kind: InstanceType | None) -> Verdict:
    """The verdict on one collective's curve."""
    limit = ceiling(op, wires)
    if limit is None:
        return Verdict(op, "skip", "no ceiling: neither the network nor the links of these nodes are known")
    cluster = _cluster(kind, wires)
    large = sorted((point for point in points if point.size >= SMALLEST), key=lambda point: point.size)
    if not large:
        return Verdict(op, "skip", "no size of 1 MiB or more was measured", limit.derivation)
    rows = [row for point in large if (row := _judged(point, limit, wires, cluster))]
    if not rows:
        why = f"ceiling {limit.busbw:.1f} GB/s; nobody has published {op} on such a system, so there is no floor"
        return Verdict(op, "skip", why, limit.derivation)
    deciding = [row for row in rows if row.size * SPREAD >= rows[-1].size]
    best = max(deciding, key=lambda row: row.busbw / row.floor)
    source = efficiency(op, best.size, limit.busbw, wires, cluster)
    assert source is not None
    how = (
        *limit.derivation,
        f"floor: such a system reaches {source.fraction:.2f} of the ceiling at {_size(best.size)} "
        f"({source.source}); {TOLERANCE:.0%} of that is required: {best.floor:.1f} GB/s",
    )
    words = f"{best.busbw:.1f} GB/s at {_size(best.size)}, floor {best.floor:.1f}, ceiling {best.ceiling:.1f}"
    if any(row.busbw > row.ceiling for row in rows):
        return Verdict(op, "fail", f"{words}: above the ceiling, so the measurement is wrong", how, tuple(rows))
    return Verdict(op, "pass" if best.busbw >= best.floor else "fail", words, how, tuple(rows))


def _judged(point: Point, limit: Ceiling, wires: Wires, cluster: Cluster | None) -> Judged | None:
    reached = efficiency(point.op, point.size, limit.busbw, wires, cluster)
    if reached is None:
        return None
    guess = predicted(point.op, point.size, wires, cluster)
    return Judged(point.size, point.busbw, limit.busbw, limit.busbw * reached.fraction * TOLERANCE, guess)


def efficiency(op: str, size: int, limit: float, wires: Wires, cluster: Cluster | None) -> Efficiency | None:
    """What part of the ceiling such a system reached at this size: published where known, else the fitted model's."""
    rows = _similar(op, wires, cluster)
    if rows:
        return Efficiency(min(1.0, _interpolate(rows, size)), rows[0].source)
    guess = predicted(op, size, wires, cluster)
    if guess is not None and cluster is not None and not cluster.device.arch.startswith("neuron"):
        return Efficiency(min(1.0, guess / limit), "the model of docs/predict/model.md, fitted to published runs")
    if cluster is not None or not wires.network:
        return None
    link = fabric("ethernet", wires.network)
    seconds = size * bus_factor(op, wires.ranks) / (limit * GB * link.ring_efficiency)
    start = link.start + link.start_per_doubling * math.log2(wires.nodes)
    fraction = link.ring_efficiency * seconds / (seconds + start)
    return Efficiency(fraction, "published Ethernet clusters, predict/fabrics.toml")


def _similar(op: str, wires: Wires, cluster: Cluster | None) -> list[Evidence]:
    """The published curve of the same collective over the same kind of wire, nearest in number of nodes."""
    if cluster is None or wires.per_node != cluster.per_node:
        return []
    wire = cluster.between.name if wires.nodes > 1 else cluster.inside.name
    rows = [row for row in evidence() if row.network == wire and (row.nodes > 1) == (wires.nodes > 1)]
    for name in (op, ALIKE.get(op, op)):
        same = [row for row in rows if row.op == name]
        if same:
            nearest = min({row.nodes for row in same}, key=lambda n: (abs(math.log2(n / wires.nodes)), n))
            return [row for row in same if row.nodes == nearest]
    return []


def _interpolate(rows: Iterable[Evidence], size: int) -> float:
    """The median fraction at each published size, straight lines between them over log(size), level outside."""
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.size, []).append(row.fraction)
    curve = sorted((math.log2(at), statistics.median(values)) for at, values in by_size.items())
    x = math.log2(size)
    if x <= curve[0][0]:
        return curve[0][1] * 2 ** (x - curve[0][0])  # below the published sizes time is constant at best
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return curve[-1][1]


def predicted(op: str, size: int, wires: Wires, cluster: Cluster | None) -> float | None:
    """The bus bandwidth the step model assumes, never above the ceiling; None for what it does not model."""
    limit = ceiling(op, wires)
    model = {
        "all_reduce": collectives.all_reduce, "all_gather": collectives.all_gather,
        "reduce_scatter": collectives.reduce_scatter, "all_to_all": collectives.all_to_all,
    }.get(op)  # fmt: skip
    if cluster is None or model is None or limit is None:
        return None
    group = replace(collectives.group(cluster, wires.ranks, 1), per_domain=wires.per_node)
    return min(limit.busbw, size / model(float(size), group) / GB * bus_factor(op, wires.ranks))


def _cluster(kind: InstanceType | None, wires: Wires) -> Cluster | None:
    return cluster_of(kind, wires.nodes) if kind is not None and kind.accelerator_count else None


@cache
def evidence() -> tuple[Evidence, ...]:
    """collective_evidence.csv, each row as a part of its own ceiling."""
    lines = (HERE / "collective_evidence.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(row for record in rows if (row := _evidence(record)))


def _evidence(record: dict[str, str]) -> Evidence | None:
    kind, nodes = find_instance(record["instance"]), int(record["nodes"])
    assert kind is not None
    cluster, limit = cluster_of(kind, nodes), ceiling(record["op"], wires_of(kind, nodes))
    assert limit is not None
    wire = cluster.between.name if nodes > 1 else cluster.inside.name
    fraction = min(1.0, float(record["busbw_gb_s"]) / limit.busbw)
    return Evidence(wire, nodes, record["op"], int(record["bytes"]), fraction, record["source"])


def _size(size: int) -> str:
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    return next((f"{size / unit:g} {name}" for unit, name in units if size >= unit), f"{size} B")


def judge_rows(
    rows: Sequence[Point], ranks: int, nodes: int, *, instance: str = "", gbps: float = 0.0, groups: int = 1
) -> list[Verdict]:
    """A verdict for each collective that was measured, on nodes of an EC2 type or with cards of a given rate."""
    kind = find_instance(instance) if instance else None
    per_node = max(1, ranks // nodes)
    if kind is not None and kind.accelerator_count:
        wires = wires_of(kind, nodes, per_node, groups)
    elif gbps or kind is not None:
        wires = plain_wires(instance or "node", nodes, per_node, gbps or (kind.network_gbps if kind else 0.0))
    else:
        wires = Wires("unknown", nodes, per_node, 0.0, 0.0)
    names = dict.fromkeys(row.op for row in rows)
    return [judge(op, [row for row in rows if row.op == op], wires, kind) for op in names]
