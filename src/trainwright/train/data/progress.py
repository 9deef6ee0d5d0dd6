"""A progress bar on stderr: one line redrawn on a terminal, an occasional line in a log file."""

from __future__ import annotations

import sys
import time
from typing import TextIO

BAR = 28


class Progress:
    """Progress, rate and time left. `unit` names what is counted, with an SI prefix added."""

    def __init__(self, total: float, unit: str, label: str, stream: TextIO | None = None) -> None:
        self.total, self.unit, self.label = max(total, 1e-9), unit, label
        self.stream = stream or sys.stderr
        self.tty = self.stream.isatty()
        self.done = self.start_at = 0.0
        self.began = self.shown = time.monotonic()

    def skip(self, amount: float) -> None:
        """Count what an earlier run did, without counting it towards the rate."""
        self.start_at += amount
        self.done += amount

    def add(self, amount: float, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.shown >= (0.1 if self.tty else 10.0):
            self.shown = now
            self._draw(note)

    def close(self, note: str = "") -> None:
        self._draw(note)
        if self.tty:
            self.stream.write("\n")

    def _draw(self, note: str) -> None:
        share = min(1.0, self.done / self.total)
        seconds = max(time.monotonic() - self.began, 1e-9)
        rate = (self.done - self.start_at) / seconds
        left = (self.total - self.done) / rate if rate > 0 else 0.0
        filled = round(share * BAR)
        text = f"{self.label} {'━' * filled}{'─' * (BAR - filled)} {share:4.0%}  {si(rate)}{self.unit}/s"
        text += f"  {clock(left)} left" if share < 1 else f"  in {clock(seconds)}"
        text += f"  {note}" if note else ""
        self.stream.write(f"\r\x1b[2K{text}" if self.tty else text + "\n")
        self.stream.flush()


def si(value: float) -> str:
    """A number with three figures and an SI prefix: 12345678 -> '12.3 M'."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} P"


def clock(seconds: float) -> str:
    """A duration in the two largest units that matter: 42s, 3m07s, 2h05m, 4d11h."""
    s = round(seconds)
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86400}d{s % 86400 // 3600:02d}h"
