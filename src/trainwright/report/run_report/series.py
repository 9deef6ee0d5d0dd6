"""Long series made small without losing what matters: each bucket of a chart keeps its lowest and its highest point,
each cell of a heat map its largest value. Reading takes constant memory per rank, whatever the length of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BUCKETS = 1000  # of a chart; a screen has no more columns than about twice that
COLUMNS = 400  # of a heat map


def kept_points(series: Sequence[Sequence[float | None]], buckets: int = BUCKETS) -> list[int]:
    """Indices to draw: all of a short series; else first and last, and each bucket's extremes in each series."""
    length = len(series[0]) if series else 0
    if length <= 2 * buckets:
        return list(range(length))
    kept = {0, length - 1}
    edges = [length * number // buckets for number in range(buckets + 1)]
    for values in series:
        for start, stop in pairwise(edges):
            known = [at for at in range(start, stop) if values[at] is not None and math.isfinite(values[at] or 0.0)]
            if known:
                kept.add(min(known, key=lambda at: values[at] or 0.0))
                kept.add(max(known, key=lambda at: values[at] or 0.0))
    return sorted(kept)


class HeatColumns:
    """Takes a row of ranks per measurement and keeps at most 2 x COLUMNS columns: when they are full, neighbours are
    merged and each keeps the larger value."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self.columns = columns
        self.per_column = 1  # measurements
        self.steps: list[int] = []
        self.rows: list[list[float]] = []
        self.taken = 0  # into the newest column

    def take(self, step: int, values: Sequence[float]) -> None:
        if self.rows and self.taken < self.per_column and len(self.rows[-1]) == len(values):
            self.rows[-1] = [max(pair) for pair in zip(self.rows[-1], values, strict=True)]
            self.steps[-1] = step
            self.taken += 1
        else:
            if len(self.rows) >= 2 * self.columns:
                self._halve()
            self.rows.append(list(values))
            self.steps.append(step)
            self.taken = 1

    def _halve(self) -> None:
        rows, steps = self.rows, self.steps
        self.rows, self.steps = [], []
        for first in range(0, len(rows) - 1, 2):
            one, two = rows[first], rows[first + 1]
            same = len(one) == len(two)  # after a restart with another number of ranks, the newer one counts
            self.rows.append([max(pair) for pair in zip(one, two, strict=True)] if same else two)
            self.steps.append(steps[first + 1])
        self.per_column *= 2
