"""Sets of stretches of time: union, intersection, difference. What a trace is measured with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Span = tuple[float, float]


class Intervals:
    """Stretches that do not overlap, in order."""

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[Span]) -> None:
        merged: list[Span] = []
        for start, end in sorted(span for span in spans if span[1] > span[0]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        self.spans = merged

    @classmethod
    def union(cls, several: Iterable[Intervals]) -> Intervals:
        return cls(span for one in several for span in one.spans)

    @property
    def length(self) -> float:
        return sum(end - start for start, end in self.spans)

    @property
    def longest(self) -> float:
        return max((end - start for start, end in self.spans), default=0.0)

    def covers(self, start: float, end: float) -> bool:
        """Whether one stretch holds all of it."""
        at = bisect_right(self.spans, (start, float("inf"))) - 1
        return at >= 0 and self.spans[at][1] >= end

    def __and__(self, other: Intervals) -> Intervals:
        both: list[Span] = []
        mine, theirs = iter(self.spans), iter(other.spans)
        a, b = next(mine, None), next(theirs, None)
        while a and b:
            start, end = max(a[0], b[0]), min(a[1], b[1])
            if start < end:
                both.append((start, end))
            if a[1] < b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return Intervals(both)

    def __sub__(self, other: Intervals) -> Intervals:
        left: list[Span] = []
        theirs = other.spans
        index = 0
        for start, end in self.spans:
            while index < len(theirs) and theirs[index][1] <= start:
                index += 1
            at, here = start, index
            while here < len(theirs) and theirs[here][0] < end:
                if theirs[here][0] > at:
                    left.append((at, theirs[here][0]))
                at = max(at, theirs[here][1])
                here += 1
            if at < end:
                left.append((at, end))
        return Intervals(left)
