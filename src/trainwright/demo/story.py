"""Telling the story: step after step, each with a verdict. A step that fails says why and the rest goes on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwright.errors import UserError

Status = Literal["pass", "fail", "skip", "error"]


class Skipped(Exception):
    """A step that cannot be done here, and why."""


class Failed(Exception):
    """A step that was done and did not come out as it should."""


@dataclass(frozen=True)
class Stage:
    """What the steps share: a folder of the demo's own, a way to speak, and what earlier steps found."""

    folder: Path
    say: Callable[[str], None]
    live: Callable[[str], None]  # one line that is written over
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step: its title, and what it does. It returns its facts."""

    title: str
    act: Callable[[Stage], dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """How one step went."""

    title: str
    status: Status
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    why: str = ""

    def row(self) -> dict[str, Any]:
        return asdict(self)


def tell(steps: Sequence[Step], stage: Stage, announce: Callable[[int, Step], None]) -> list[Outcome]:
    """Every step in order; each outcome is kept, whatever it is."""
    outcomes = []
    for number, step in enumerate(steps, start=1):
        announce(number, step)
        outcome = _act(step, stage)
        if outcome.why:
            stage.say(f"{outcome.status}: {outcome.why}")
        outcomes.append(outcome)
    return outcomes


def _act(step: Step, stage: Stage) -> Outcome:
    start = time.perf_counter()

    def outcome(status: Status, facts: dict[str, Any] | None = None, why: str = "") -> Outcome:
        return Outcome(step.title, status, round(time.perf_counter() - start, 2), facts or {}, why)

    try:
        return outcome("pass", step.act(stage))
    except Skipped as reason:
        return outcome("skip", why=str(reason))
    except Failed as reason:
        return outcome("fail", why=str(reason))
    except UserError as error:
        return outcome("fail", why=str(error))
    except Exception as error:  # one broken step must not hide the others; the place is told
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return outcome("error", why=f"{type(error).__name__}: {error} ({where})")
