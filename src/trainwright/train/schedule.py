"""The learning rate of each step: linear warmup, then cosine, linear, or constant with a final decay (WSD)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwright.errors import UserError


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pure function of the step, so that resuming needs no state."""

    kind: str
    peak: float
    steps: int
    warmup: int = 0
    decay: int = 0  # wsd only
    floor: float = 0.1  # share of the peak at the end

    def __post_init__(self) -> None:
        tail = self.decay if self.kind == "wsd" else 0
        if self.warmup + tail > self.steps:
            raise UserError(
                f"{self.warmup} warmup steps and {tail} decay steps are more than the {self.steps} steps of the run",
                fix=f"--warmup {max(0, self.steps // 10)}" + (f" --decay {max(1, self.steps // 10)}" if tail else ""),
            )

    def __call__(self, step: int) -> float:
        """The rate of `step`, counted from 0."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.kind == "wsd":
            return self._fall(1 - (self.steps - step) / self.decay if self.decay else 0.0)
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        if self.kind == "cosine":
            share = (1 - math.cos(math.pi * min(1.0, share))) / 2
        return self._fall(share)

    def _fall(self, share: float) -> float:
        return self.peak * (1 - (1 - self.floor) * min(1.0, max(0.0, share)))
