"""The demo's steps run in order, each with a verdict. A step that fails gives its reason, and the others still run."""

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
    """A step whose outcome is wrong."""


@dataclass(frozen=True)
class Context:
    """What the steps share: the demo's folder, ways to print, and the results of earlier steps."""

    folder: Path
    say: Callable[[str], None]
    live: Callable[[str], None]  # one line that is written over
    results: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step: its title, and what it does. It returns its facts."""

    title: str
    run: Callable[[Context], dict[str, Any]]


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


def run_steps(steps: Sequence[Step], context: Context, announce: Callable[[int, Step], None]) -> list[Outcome]:
    """Every step in order; each outcome is kept, whatever it is."""
    outcomes = []
    for number, step in enumerate(steps, start=1):
        announce(number, step)
        outcome = _run_step(step, context)
        if outcome.why:
            context.say(f"{outcome.status}: {outcome.why}")
        outcomes.append(outcome)
    return outcomes


def _run_step(step: Step, context: Context) -> Outcome:
    start = time.perf_counter()

    def outcome(status: Status, facts: dict[str, Any] | None = None, why: str = "") -> Outcome:
        return Outcome(step.title, status, round(time.perf_counter() - start, 2), facts or {}, why)

    try:
        return outcome("pass", step.run(context))
    except Skipped as reason:
        return outcome("skip", why=str(reason))
    except Failed as reason:
        return outcome("fail", why=str(reason))
    except UserError as error:
        return outcome("fail", why=str(error))
    except Exception as error:  # one broken step must not hide the others; its location is reported
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return outcome("error", why=f"{type(error).__name__}: {error} ({where})")
