"""Finds the slow node or link among N nodes in O(log N) rounds: pairs first, then groups cut in half.

A round is a set of node pairs that exchange messages. Within a round each node talks to one partner at a time, in a
fixed order, and every exchange is timed by itself; the rounds are the only points where all nodes wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Pair = tuple[int, int]
Steps = Sequence[Sequence[Pair]]  # what happens in one round: steps of disjoint pairs
FEW = 4
CONFIRMATIONS = 3
Measure = Callable[[Steps], dict[Pair, float]]  # GB/s of each pair


@dataclass
class Search:
    """The state of one search. `below`: a pair is slow under this part of the usual pair's rate."""

    nodes: int
    measure: Measure
    below: float = 0.5
    rounds: int = 0
    rates: dict[Pair, float] = field(default_factory=dict)

    def run(self, steps: Steps) -> dict[Pair, float]:
        """One round; what it measured counts for what is usual."""
        self.rounds += 1
        rates = self.measure(steps)
        self.rates |= rates
        return rates

    @property
    def usual(self) -> float:
        """The upper quartile over pairs: with three nodes two of three pairs may hold the slow one, and with many a
        single lucky exchange must not make the others look slow."""
        rates = sorted(self.rates.values())
        return rates[round(0.75 * (len(rates) - 1))]

    def slow(self, rates: dict[Pair, float]) -> list[Pair]:
        limit = self.below * self.usual
        return [pair for pair, rate in rates.items() if rate < limit]

    def confirmed(self, pair: Pair) -> bool:
        """Measured alone and again, every other node silent: one fast exchange, and it was only a busy moment."""
        return all(self.slow(self.run([[pair]])) for _ in range(CONFIRMATIONS))


@dataclass(frozen=True, slots=True)
class Slow:
    """What was found: node numbers, and pairs of nodes that are slow only between themselves."""

    nodes: tuple[int, ...]
    links: tuple[Pair, ...]


def find_slow(search: Search) -> Slow:
    """The slow nodes, then the slow links among the other nodes."""
    nodes = _few_slow_nodes(search) if search.nodes <= FEW else _slow_nodes(search)
    healthy = [node for node in range(search.nodes) if node not in nodes]
    links = _slow_links(search, healthy)
    return Slow(tuple(nodes), tuple(links))


def _few_slow_nodes(search: Search) -> list[int]:
    """So few that every pair is measured in one round: a node is slow when all of its pairs are, and others are not."""
    pairs = [(a, b) for a in range(search.nodes) for b in range(a + 1, search.nodes)]
    slow = search.slow(search.run([[pair] for pair in pairs]))
    fast = {node for pair in pairs if pair not in slow for node in pair}
    suspects = [node for node in range(search.nodes) if node not in fast] if fast else []
    return [node for node in suspects if search.confirmed(_pair(node, min(fast)))]


def _slow_nodes(search: Search) -> list[int]:
    """All nodes in pairs at once; then each node of a slow pair with one of a fast pair."""
    order = list(range(search.nodes))
    half = len(order) // 2
    rates = search.run([list(zip(order[:half], order[half : 2 * half], strict=True))])
    slow = search.slow(rates)
    fast = [node for pair in rates if pair not in slow for node in pair]
    suspects = [node for pair in slow for node in pair] + order[2 * half :]
    if not suspects or not fast:
        # With no fast pair there is nobody to compare with inside; with two nodes the link is all there is.
        return []
    tested: dict[int, int] = {}  # suspect -> the fast node it met
    again: set[Pair] = set()
    while len(tested) < len(suspects):
        left = [node for node in suspects if node not in tested]
        met = dict(zip(left, fast, strict=False))
        again |= set(search.slow(search.run([[_pair(*item) for item in met.items()]])))
        tested |= met
    slow_again = [node for node in suspects if _pair(node, tested[node]) in again]
    # Slow with a second node as well, or it was only that link.
    other = {node: next(n for n in reversed(fast) if n != tested[node]) for node in slow_again}
    return sorted(node for node in slow_again if search.confirmed(_pair(node, other[node])))


def _slow_links(search: Search, nodes: Sequence[int]) -> list[Pair]:
    """Blocks of nodes, cut in half again and again: each pair of nodes is across exactly one cut, and the cuts of one
    depth are one round. A slow cut is then narrowed by quarters."""
    links: list[Pair] = []
    blocks: list[Sequence[int]] = [nodes]
    while any(len(block) > 1 for block in blocks):
        cuts = [_halves(block) for block in blocks if len(block) > 1]
        slow = set(search.slow(search.run(_crossing(cuts))))
        for left, right in cuts:
            if any(_pair(a, b) in slow for a in left for b in right):
                links += _narrow(search, left, right)
        blocks = [half for cut in cuts for half in cut]
    return sorted(set(links))


def _narrow(search: Search, left: Sequence[int], right: Sequence[int]) -> list[Pair]:
    """The slow pairs between two groups; two rounds per depth, since a group can face one half at a time."""
    if len(left) == 1 and len(right) == 1:
        pair = _pair(left[0], right[0])
        return [pair] if search.confirmed(pair) else []
    (a, b), (c, d) = _halves(left), _halves(right)
    links: list[Pair] = []
    for cuts in ([(a, c), (b, d)], [(a, d), (b, c)]):
        real = [(x, y) for x, y in cuts if x and y]
        slow = set(search.slow(search.run(_crossing(real)))) if real else set()
        for x, y in real:
            if any(_pair(i, j) in slow for i in x for j in y):
                links += _narrow(search, x, y)
    return links


def _halves(block: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    middle = (len(block) + 1) // 2
    return block[:middle], block[middle:]


def _crossing(cuts: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[list[Pair]]:
    """Every pair across each cut: in step s, node i of one side meets node i + s of the other."""
    cuts = list(cuts)
    steps: list[list[Pair]] = []
    for step in range(max(max(len(left), len(right)) for left, right in cuts)):
        pairs = []
        for left, right in cuts:
            few, many = sorted((left, right), key=len)
            pairs += [_pair(node, many[(i + step) % len(many)]) for i, node in enumerate(few) if step < len(many)]
        steps.append(pairs)
    return steps


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


class Exchange:
    """Measures pairs of nodes for real: rank k of one node exchanges messages with rank k of the other, both ways."""

    def __init__(self, world: Any, size: int, repeats: int = 3) -> None:
        import torch

        self.world, self.size, self.repeats = world, size, repeats
        self.nodes: list[list[int]] = world.nodes
        self.source = torch.ones(size, dtype=torch.uint8, device=world.device)
        self.result = torch.empty_like(self.source)

    def __call__(self, steps: Steps) -> dict[Pair, float]:
        import torch.distributed as dist

        dist.barrier()
        own: dict[Pair, float] = {}
        for pairs in steps:
            for pair in pairs:
                peer = self._peer(pair)
                if peer is not None:
                    own[pair] = self.size / self._seconds(peer) / 1e9
        everyone: list[dict[Pair, float]] = [{} for _ in range(self.world.size)]
        dist.all_gather_object(everyone, own)
        rates: dict[Pair, float] = {}
        for part in everyone:
            for pair, rate in part.items():
                rates[pair] = min(rate, rates.get(pair, rate))  # the slowest rail of the two nodes
        return rates

    def _peer(self, pair: Pair) -> int | None:
        """The rank this one talks to; None where it has no part in the pair."""
        for mine, other in (pair, pair[::-1]):
            ranks, others = self.nodes[mine], self.nodes[other]
            if self.world.rank in ranks:
                place = ranks.index(self.world.rank)
                return others[place] if place < len(others) else None
        return None

    def _seconds(self, peer: int) -> float:
        """The fastest of a few exchanges, after one that opens the connection and waits for the partner."""
        import torch
        import torch.distributed as dist

        best = float("inf")
        for attempt in range(self.repeats + 1):
            began = time.perf_counter()
            source, result = (self.source, self.result) if attempt else (self.source[:1], self.result[:1])
            ops = [dist.P2POp(dist.isend, source, peer), dist.P2POp(dist.irecv, result, peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            if self.world.device.type == "cuda":
                torch.cuda.synchronize()
            if attempt:
                best = min(best, time.perf_counter() - began)
        return best


def search_world(world: Any, size: int, below: float) -> dict[str, Any]:
    """Search the nodes of a running world; the same answer on every rank."""
    from trainwright.errors import UserError

    if len(world.nodes) < 2:
        raise UserError("the search needs at least two nodes", fix="start ranks on several nodes")
    search = Search(len(world.nodes), Exchange(world, size), below)
    slow = find_slow(search)
    names = [world.hosts[ranks[0]] for ranks in world.nodes]
    links = [f"{names[a]} - {names[b]}" for a, b in slow.links]
    report = {
        "nodes": names, "message_bytes": size, "slow_below": below, "rounds": search.rounds,
        "usual_gb_s": search.usual, "slow_nodes": [names[node] for node in slow.nodes], "slow_links": links,
        "rates": [{"a": names[a], "b": names[b], "gb_s": rate} for (a, b), rate in sorted(search.rates.items())],
    }  # fmt: skip
    return {**report, "text": _text(report, search, slow, names)}


def _text(report: dict[str, Any], search: Search, slow: Slow, names: Sequence[str]) -> str:
    lines = [f"{search.nodes} nodes, {search.rounds} rounds, the usual pair {search.usual:.3f} GB/s each way"]
    for node in slow.nodes:
        rates = [rate for pair, rate in search.rates.items() if node in pair]
        lines.append(f"slow node {names[node]}: {max(rates):.3f} GB/s at best ({max(rates) / search.usual:.0%})")
    for a, b in slow.links:
        rate = search.rates[a, b]
        lines.append(f"slow link {names[a]} - {names[b]}: {rate:.3f} GB/s ({rate / search.usual:.0%})")
    if len(lines) == 1:
        lines.append("no slow node and no slow link")
    return "\n".join(lines)
