"""Notices that a run falls behind its prediction by more than its interval, and names the likely cause, once per cause.
The trainer does this for itself; `watch` and `submit --follow` do it for other trainers, from the steps they log."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WARM_UP = 5  # lines that are not looked at: compilation, caches, first collectives
WINDOW = 20  # lines that a judgement rests on
HOLD = WINDOW + 5  # lines in a row for which it must hold: one slow step, which leaves the window by then, is no news
LAST_LINE = 2**22  # bytes; a line of timings.jsonl has about a hundred per rank
SHARE = 0.1  # of a step: less than that explains nothing
DATA, STALL, STRAGGLER, CLOCK, RESTARTS, STEP = (
    "data wait", "checkpoint stall", "straggler", "throttled clock", "restarts", "slow step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expectation:
    """What `prediction.json` promises of the whole job."""

    tokens_per_s: float
    low: float  # of the 80 % interval, tokens/s
    high: float
    step_s: float
    goodput: float


@dataclass(frozen=True, slots=True)
class Behind:
    """A run is slower than the interval of its prediction allows."""

    step: int
    cause: str
    why: str
    measured: float  # tokens/s
    predicted: float
    low: float

    def facts(self) -> dict[str, Any]:
        """What the event holds beside its step."""
        return {name: value for name, value in asdict(self).items() if name != "step"}


def read_expectation(folder: Path) -> Expectation | None:
    """None where nothing was predicted."""
    try:
        row = json.loads((folder / "prediction.json").read_text(encoding="utf-8"))
        goodput = float((row.get("goodput") or {}).get("effective") or 1.0)
        rate, step_s = float(row["tokens_per_s"]), float(row["step_time_s"])
        low, high = (float(row[name]) * int(row["gpus"]) for name in ("low", "high"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Expectation(rate, low, high, step_s, goodput) if rate > 0 else None


class BehindWatch:
    """Takes each line of metrics; gives what has to be said, each cause once."""

    def __init__(
        self,
        folder: Path,
        said: Sequence[str] = (),
        clocks: Callable[[], str] = lambda: "",
        expected: Expectation | None = None,
    ) -> None:
        self.folder, self.clocks = folder, clocks
        self.expected = expected
        self.said = set(said)
        self.lines = 0
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)
        self.slow = 0  # lines in a row whose window was too slow

    def take(self, row: Mapping[str, Any]) -> Behind | None:
        self.lines += 1
        if self.lines <= WARM_UP or not row.get("tokens_per_s"):
            return None
        self.recent.append(row)
        if len(self.recent) < WINDOW:
            return None
        # Read late: whoever predicts may write the file while the job starts.
        self.expected = self.expected or read_expectation(self.folder)
        if self.expected is None:
            return None
        measured = WINDOW / sum(1 / line["tokens_per_s"] for line in self.recent)
        self.slow = self.slow + 1 if measured < self.expected.low else 0
        if self.slow and self.slow % HOLD == 0:
            return self._say(row, measured, *self._cause(self.expected))
        return self._restarts(row, self.expected) if self.lines % WINDOW == 0 else None

    def _say(self, row: Mapping[str, Any], measured: float, cause: str, why: str) -> Behind | None:
        if cause in self.said or self.expected is None:
            return None
        self.said.add(cause)
        return Behind(int(row["step"]), cause, why, measured, self.expected.tokens_per_s, self.expected.low)

    def _restarts(self, row: Mapping[str, Any], expected: Expectation) -> Behind | None:
        """Steps may be as fast as predicted while the training as a whole is not: time went into starting again."""
        goodput = row.get("goodput")
        allowed = expected.goodput * expected.low / expected.tokens_per_s
        if goodput is None or goodput >= allowed or RESTARTS in self.said or (count := _starts(self.folder) - 1) < 1:
            return None
        times = "1 restart" if count == 1 else f"{count} restarts"
        why = f"{times}: {goodput:.0%} of the time went into steps that count"
        return self._say(row, row["tokens_per_s"] * goodput, RESTARTS, why)

    def _cause(self, expected: Expectation) -> tuple[str, str]:
        return likely_cause(list(self.recent), expected.step_s, straggler_in(self.folder), self.clocks)


def likely_cause(
    rows: Sequence[Mapping[str, Any]], predicted_s: float, straggler: str, clocks: Callable[[], str] = lambda: ""
) -> tuple[str, str]:
    """(cause, sentence) for steps that take longer than predicted: the largest wait, else a rank, else the clocks."""
    steps = [row["step_s"] for row in rows if row.get("step_s")]
    step = sum(steps) / len(steps) if steps else predicted_s
    waits = {DATA: _mean(rows, "data_wait_s"), STALL: _mean(rows, "checkpoint_stall_s")}
    longest = max(waits, key=lambda name: waits[name])
    if waits[longest] > SHARE * step:
        what = "data" if longest == DATA else "checkpoints"
        return longest, f"each step waits {waits[longest]:.3g} s of {step:.3g} s for {what}"
    if straggler:
        return STRAGGLER, straggler
    if slowed := clocks():
        return CLOCK, slowed
    own = step - sum(waits.values())
    return STEP, f"compute and communication take {own:.3g} s per step, predicted {predicted_s:.3g} s"


def straggler_in(folder: Path) -> str:
    """The straggler that the newest measurement of the ranks names, if any."""
    from trainwright.health.stragglers import FILE

    try:
        with (folder / FILE).open("rb") as timings:
            timings.seek(max(0, timings.seek(0, 2) - LAST_LINE))
            newest = json.loads(timings.read().splitlines()[-1])["stragglers"][0]
        return f"rank {newest['rank']} on {newest['host']} {newest['message']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def throttled_clocks() -> str:
    """Which GPUs of this node run below their clock, and why; empty where none does or there is no nvidia-smi."""
    query = [
        "nvidia-smi",
        "--query-gpu=index,clocks_event_reasons.hw_slowdown,clocks_event_reasons.sw_thermal_slowdown",
    ]
    try:
        done = subprocess.run([*query, "--format=csv,noheader"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    slowed = [line.split(",")[0].strip() for line in done.stdout.splitlines() if ", Active" in line]
    return f"the clocks of GPU {', '.join(slowed)} of this node are slowed by heat or power" if slowed else ""


def said_in(folder: Path) -> set[str]:
    """The causes that the run's events already name."""
    causes = set()
    try:
        for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines():
            if '"event": "behind"' in line:
                causes.add(str(json.loads(line)["cause"]))
    except (OSError, ValueError, KeyError):
        return causes
    return causes


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(row.get(name) or 0.0 for row in rows) / max(1, len(rows))


def _starts(folder: Path) -> int:
    try:
        return (folder / "events.jsonl").read_text(encoding="utf-8").count('"event": "start"')
    except OSError:
        return 0
