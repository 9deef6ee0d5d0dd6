"""How far a run is, from its steps: loss, speed, and the time that is left.

The pace is the median time per step of the current start of the run. Neither the pause of a restart nor one slow step
(a checkpoint, an evaluation) moves it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WINDOW = 20  # steps the pace is taken over
ENOUGH = 3  # steps of a new start after which the pace of the one before no longer counts
PAUSE = 5.0  # times the usual step: more than that is a restart, not a step


@dataclass
class Progress:
    """The newest step, and how fast steps come."""

    steps: int | None = None
    predicted: float | None = None  # tokens/s
    step: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    goodput: float | None = None
    speeds: list[float] = field(default_factory=list)  # tokens/s of every line
    paces: list[float] = field(default_factory=list)  # seconds per step of this start, newest last
    earlier: list[float] = field(default_factory=list)  # the same of the start before
    last_time: float | None = None

    def take(self, steps: Iterable[Mapping[str, Any]]) -> bool:
        """Read new steps; whether there were any."""
        some = False
        for step in steps:
            self._add(step)
            some = True
        return some

    def _add(self, record: Mapping[str, Any]) -> None:
        now, step = record.get("time"), int(record["step"])
        if now is not None and self.last_time is not None:
            self._pace(now - self.last_time, step - self.step, record.get("step_s"))
        elif record.get("step_s"):
            self.paces.append(float(record["step_s"]))
            del self.paces[:-WINDOW]
        self.step, self.last_time = step, now
        self.steps = self.steps or record.get("total")
        self.loss = record.get("loss", self.loss)
        self.goodput = record.get("goodput", self.goodput)
        if record.get("tokens_per_s"):
            self.tokens_per_second = float(record["tokens_per_s"])
            self.speeds.append(self.tokens_per_second)

    def _pace(self, seconds: float, steps: int, told: float | None) -> None:
        """One more interval. Going back, or a pause much longer than a step, is a restart: the pace starts over."""
        usual = self.seconds_per_step
        if steps <= 0 or (usual is not None and seconds > PAUSE * usual * steps and seconds > 1):
            self.earlier, self.paces = self.paces or self.earlier, []
            # The first line of a new start has no line before it; the trainer says itself how long its step took.
            self.paces += [told] if told else []
            return
        self.paces.append(seconds / steps)
        del self.paces[:-WINDOW]

    @property
    def seconds_per_step(self) -> float | None:
        paces = self.paces if len(self.paces) >= ENOUGH else [*self.earlier[-WINDOW:], *self.paces]
        return statistics.median(paces) if paces else None

    @property
    def speed(self) -> float | None:
        """Tokens per second of the run as a whole: the median of its lines without the first, which warms up."""
        return statistics.median(self.speeds[1:] or self.speeds) if self.speeds else None

    def seconds_left(self) -> float | None:
        pace = self.seconds_per_step
        return pace * max(0, self.steps - self.step) if self.steps and pace is not None else None

    def line(self) -> str:
        """`step 120/500  loss 2.3451  8.1k tokens/s  ETA 0:01:02`; what is not known is left out."""
        return "  ".join(self.parts())

    def parts(self) -> list[str]:
        parts = [f"step {self.step}" + (f"/{self.steps}" if self.steps else "")]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.tokens_per_second:
            beside = f" ({short(self.predicted)} predicted)" if self.predicted else ""
            parts.append(f"{short(self.tokens_per_second)} tokens/s{beside}")
        left = self.seconds_left()
        return parts if not left else [*parts, f"ETA {clock(left)}"]


def steps_in(command: Sequence[str]) -> int | None:
    """The steps a command of our trainer asks for: its last `--steps`, which may come from the user's own words."""
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--steps=") else [word])]
    values = [value for option, value in itertools.pairwise(words) if option == "--steps"]
    return int(values[-1]) if values and values[-1].isdecimal() else None


def short(value: float) -> str:
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
