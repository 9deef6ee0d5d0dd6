"""Several sources in fixed proportions: which source the n-th sample comes from, and its index within that source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from trainwright.errors import UserError

CYCLE = 1024  # weights are rounded to this many parts


class Part(NamedTuple):
    """A source of a mixture: where it lies, how many samples it has, and its share of the samples that are seen."""

    where: str
    samples: int
    share: float


class Mixture:
    """A repeating pattern of sources, as even as whole numbers allow, so any position is found in constant time."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.shares = whole_shares(weights)
        self.pattern = spread(self.shares)
        self.before: list[int] = []  # how many samples of its own source come before each place of the pattern
        used = [0] * len(self.shares)
        for source in self.pattern:
            self.before.append(used[source])
            used[source] += 1

    def locate(self, n: int) -> tuple[int, int]:
        """(source, index within that source) of the n-th sample."""
        cycle, place = divmod(n, len(self.pattern))
        source = self.pattern[place]
        return source, cycle * self.shares[source] + self.before[place]

    def parts(self, where: Sequence[str], counts: Sequence[int]) -> list[Part]:
        """The sources, which have that many samples."""
        total = len(self.pattern)
        return [Part(w, c, s / total) for w, c, s in zip(where, counts, self.shares, strict=True)]

    def epoch(self, counts: Sequence[int]) -> int:
        """Samples after which the first source to run out has been seen once."""
        return min(c * len(self.pattern) // s for c, s in zip(counts, self.shares, strict=True))


def whole_shares(weights: Sequence[float]) -> list[int]:
    """The weights as small whole numbers: exact for 3:1, within 1/1024 for anything else (largest remainder)."""
    total = float(sum(weights))
    if not weights or not all(0 < w < math.inf for w in weights):
        raise UserError(f"mixture weights must all be positive, got {list(weights)}", fix="--data A:0.7 B:0.3")
    exact = [w / total * CYCLE for w in weights]
    shares = [max(1, int(e)) for e in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: int(exact[i]) - exact[i])
    for i in by_remainder[: max(0, CYCLE - sum(shares))]:
        shares[i] += 1
    ratios = [w / min(weights) for w in weights]
    if all(abs(r - round(r)) < 1e-9 for r in ratios) and sum(ratios) <= CYCLE:
        shares = [round(r) for r in ratios]
    divisor = reduce(math.gcd, shares)
    return [s // divisor for s in shares]


def spread(shares: Sequence[int]) -> list[int]:
    """Each source i exactly shares[i] times, evenly spread: the source furthest behind its share comes next."""
    total = sum(shares)
    credit = [0] * len(shares)
    pattern = []
    for _ in range(total):
        credit = [c + s for c, s in zip(credit, shares, strict=True)]
        source = max(range(len(shares)), key=lambda i: (credit[i], -i))
        credit[source] -= total
        pattern.append(source)
    return pattern
