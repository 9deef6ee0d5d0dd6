"""The words of a health report: the status of one check, the verdict on a node, and what each means to a scheduler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from trainwright.health.node import Node
from trainwright.health.profile import Profile

# From good to bad. `monitor`: usable, something to look at. `reset`: the GPUs. `isolate`: take the node away.
VERDICTS = ("pass", "monitor", "reset", "reboot", "isolate")
STATUSES = ("pass", "warn", "fail", "skip", "error")
# For an epilog or a script that routes by verdict (`--exit-code verdict`).
EXIT_CODES = {"pass": 0, "monitor": 3, "reset": 4, "reboot": 5, "isolate": 6}
USABLE = ("pass", "monitor")


def worst(verdicts: Sequence[str]) -> str:
    return max(verdicts, key=VERDICTS.index, default="pass")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one check says: a status, a sentence, and the verdict where it differs from the check's own."""

    status: str
    message: str
    verdict: str = ""


def passed(message: str) -> Outcome:
    return Outcome("pass", message)


def warned(message: str) -> Outcome:
    return Outcome("warn", message)


def failed(message: str, verdict: str = "") -> Outcome:
    return Outcome("fail", message, verdict)


def skipped(reason: str) -> Outcome:
    """The check does not apply here."""
    return Outcome("skip", reason)


def unknown(reason: str) -> Outcome:
    """The check applies and could not be made: the report is not complete."""
    return Outcome("skip", reason, "unknown")


def worst_outcome(outcomes: Sequence[Outcome], good: str) -> Outcome:
    """Several faults of one check as one outcome: the worst, with every message."""
    if not outcomes:
        return passed(good)
    failures = [outcome for outcome in outcomes if outcome.status == "fail"]
    message = "; ".join(outcome.message for outcome in outcomes)
    if not failures:
        return warned(message)
    named = [outcome.verdict for outcome in failures if outcome.verdict]
    return failed(message, worst(named) if named else "")


@dataclasses.dataclass(frozen=True)
class Check:
    """One unit: what it looks at, what it needs, how long it takes, and what a failure of it means for the node."""

    id: str
    title: str
    suite: str  # the smallest suite that runs it
    needs: tuple[str, ...]
    seconds: float
    action: str  # the verdict when it fails
    commands: tuple[tuple[str, ...], ...]  # run at once before the checks, to save time
    function: Callable[[Node, Profile], Outcome]

    @property
    def severity(self) -> str:
        """How bad a failure is: `fail` takes the node away from the scheduler, `warn` does not."""
        return "warn" if self.action in USABLE else "fail"


@dataclasses.dataclass(frozen=True)
class Result:
    """A check's outcome on a node."""

    id: str
    title: str
    status: str
    verdict: str
    message: str
    seconds: float = 0.0
    unknown: bool = False  # it applies and could not be made


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything known about one node after a suite."""

    node: str
    instance: str
    suite: str
    verdict: str
    complete: bool  # false when a check that applies could not be made: then `pass` is not the whole truth
    time: float
    seconds: float
    results: tuple[Result, ...]
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether a scheduler may start work here."""
        return self.verdict in USABLE

    @property
    def faults(self) -> list[Result]:
        """What is not as it should be, worst first."""
        bad = [result for result in self.results if result.status in ("warn", "fail", "error")]
        return sorted(bad, key=lambda result: -VERDICTS.index(result.verdict))

    @property
    def reason(self) -> str:
        """One line for a drain reason or a node condition."""
        named = [fault for fault in self.faults if fault.verdict == self.verdict] or self.faults
        return "; ".join(f"{fault.id}: {fault.message}" for fault in named)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def report_from_json(row: dict[str, Any]) -> Report:
    results = tuple(Result(**result) for result in row["results"])
    return Report(**{**row, "results": results})
