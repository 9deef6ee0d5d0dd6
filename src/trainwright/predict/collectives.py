"""How long a collective takes: an opening latency, the bytes over the slowest link, the time to fill the pipeline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from trainwright.predict.hardware import Cluster, Link

RING_RANKS = 512  # the largest ring in published measurements
ALLTOALL_GROWTH = 0.93  # exponent of the node count in an all-to-all's chain, from the p5 sweeps of 2 to 32 nodes


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of one collective: how many, how many of them share one domain, and the links they use."""

    ranks: int
    per_domain: int
    inside: Link
    between: Link
    peers: int = 0  # peers of a GPU that is linked pair by pair; 0: through a switch

    @property
    def domains(self) -> int:
        return max(1, math.ceil(self.ranks / self.per_domain))

    @property
    def inner_rate(self) -> float:
        """Without a switch, a pair of GPUs has only its own links."""
        if not self.peers:
            return self.inside.rate
        return self.inside.rate * min(self.ranks - 1, self.peers) / self.peers


@lru_cache(maxsize=100_000)
def group(cluster: Cluster, ranks: int, stride: int) -> Group:
    """`ranks` ranks, each `stride` apart in the order tensor, context, data, pipeline; neighbours share a node."""
    per_domain = max(1, min(ranks, cluster.domain // stride)) if stride < cluster.domain else 1
    return Group(ranks, per_domain, cluster.inside, cluster.between, peers=cluster.peers)


def pipelined(start: float, wire: float, chain: float) -> float:
    """Chunks of the best size through a chain that takes `chain` to fill, after `start`."""
    return start + wire + 2.0 * math.sqrt(chain * wire)


def all_gather(size: float, g: Group) -> float:
    """Seconds for every rank to hold all `size` bytes. A reduce-scatter moves the same bytes the other way."""
    if g.ranks <= 1 or size <= 0:
        return 0.0
    share = size * (g.ranks - 1) / g.ranks
    inner = share / (g.inner_rate * g.inside.ring_efficiency)
    if g.domains == 1:
        return pipelined(g.inside.start, inner, g.inside.hop * (g.ranks - 1))
    outer = share / (g.between.rate * g.per_domain * g.between.ring_efficiency)
    hops = g.between.hop * ring_steps(g.ranks)
    return g.inside.start + hops + max(inner, outer)


def ring_steps(ranks: int) -> float:
    """Steps of a ring; beyond RING_RANKS, libraries use trees and several levels, whose depth grows with the log."""
    return ranks - 1 if ranks <= RING_RANKS else (RING_RANKS - 1) * (1 + math.log2(ranks / RING_RANKS))


def broadcasts(size: float, g: Group) -> float:
    """Every rank in turn sends its part of `size` bytes to all others, in chunks along a chain of the ranks."""
    if g.domains == 1 or size <= 0:
        return all_gather(size, g)
    wire = size / (g.between.rate * g.per_domain * g.between.ring_efficiency)
    return g.ranks * pipelined(g.between.start, wire / g.ranks, g.between.hop * (g.ranks - 1))


def reduce_scatter(size: float, g: Group) -> float:
    return all_gather(size, g)


def all_reduce(size: float, g: Group) -> float:
    """One domain: in-switch where the link can, else a ring. Two: a tree across. More: rings, chunks pipelined."""
    if g.ranks <= 1 or size <= 0:
        return 0.0
    passes = 2.0 * (g.ranks - 1) / g.ranks
    local = min(g.ranks, g.per_domain)
    in_switch = local > 4 and not g.peers
    efficiency = g.inside.reduce_efficiency if in_switch else g.inside.ring_efficiency
    inner = size * 2.0 * (local - 1) / local / (g.inner_rate * efficiency)
    if g.domains == 1:
        return pipelined(g.inside.start, inner, g.inside.pipeline)
    node_rate = g.between.rate * g.per_domain * g.between.reduce_efficiency
    outer = size * (1.0 if g.domains == 2 else passes) / node_rate
    start = g.between.start + g.between.start_per_doubling * math.log2(g.domains)
    return pipelined(start, max(inner, outer), g.between.pipeline * g.domains**g.between.pipeline_growth)


def all_to_all(size: float, g: Group, across: float | None = None) -> float:
    """Every rank sends `size` bytes, an equal part to each; what leaves the domain uses the rank's own adapter.
    `across`: bytes sent to other domains where equal parts are sent there once, as for tokens and their experts."""
    if g.ranks <= 1 or size <= 0:
        return 0.0
    inner = size * (g.ranks - 1) / g.ranks / (g.inner_rate * g.inside.ring_efficiency)
    if g.domains == 1:
        return pipelined(g.inside.start, inner, g.inside.pipeline)
    far = (size if across is None else across) * (1 - 1 / g.domains)
    outer = far / (g.between.rate * g.between.alltoall_efficiency)
    return pipelined(g.between.start, max(inner, outer), g.between.alltoall_pipeline * g.domains**ALLTOALL_GROWTH)


def send(size: float, link: Link) -> float:
    """One rank to one other."""
    return link.start + size / (link.rate * link.point_efficiency) if size > 0 else 0.0
