"""The loop behind `up` and `down`: steps with what each one needs first. Every step asks AWS where it stands and does
the next thing, so a step can begin anywhere. Steps that do not need each other advance side by side, in one thread."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainwright.aws.session import AwsUnreachable
from trainwright.errors import UserError

FIRST_PAUSE = 1.0  # seconds; no step asks AWS about itself more often than this
LONGEST_PAUSE = 20.0
PATIENCE = 15 * 60.0  # seconds without an answer of AWS before a run gives up


BUSY = ("creating", "changing", "removing", "rolling back", "stopping", "starting")


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class BuildFailed(UserError):
    """A step came to a bad end on AWS: an answer (status 1), not a mistake of usage."""

    status = 1


@dataclass
class Step(ABC):
    """One thing to make or remove. `advance` does what can be done now and returns True when the step is over."""

    key: str
    title: str
    needs: tuple[str, ...] = ()
    state: str = "waiting"
    detail: str = ""
    parts: dict[str, str] = field(default_factory=dict)  # resource -> state, for the live tree
    began: float | None = None
    ended: float | None = None
    _pause: float = FIRST_PAUSE
    _peek: bool = False

    @abstractmethod
    def advance(self) -> bool: ...

    def now(self, state: str, detail: str = "") -> None:
        """Note a state; a new one is looked at again soon, an old one less and less often."""
        if (state, detail) != (self.state, self.detail):
            self.state, self.detail, self._pause = state, detail, FIRST_PAUSE

    def peek(self, look: Callable[[], dict[str, str]]) -> bool:
        """Every second look is at the parts instead of at the whole, so that no second brings two calls. True where
        this one was."""
        if self._peek:
            self.parts = look()
        self._peek = not self._peek
        return not self._peek

    def pause(self) -> float:
        self._pause, pause = min(self._pause * 1.5, LONGEST_PAUSE), self._pause
        return pause


Watch = Callable[[Sequence[Step], Step], None]


def run(steps: Sequence[Step], watch: Watch, clock: Clock = time) -> None:
    """Advance the steps until all are over. `watch` sees every step after it advanced."""
    over: set[str] = set()
    due = dict.fromkeys((step.key for step in steps), 0.0)
    silent_since: float | None = None
    while len(over) < len(steps):
        now = clock.monotonic()
        open_steps = [step for step in steps if step.key not in over and over.issuperset(step.needs)]
        ready = [step for step in open_steps if due[step.key] <= now]
        if not ready:
            clock.sleep(max(min(due[step.key] for step in open_steps) - now, 0.01))
            continue
        for step in ready:
            step.began = step.began if step.began is not None else now
            try:
                ended = step.advance()
                silent_since = None
            except BuildFailed as error:
                busy = [other.title.split(":")[0] for other in steps if other is not step and other.state in BUSY]
                if busy:
                    error.fix = f"{error.fix or 'run the same command again'} (AWS still works on: {', '.join(busy)})"
                step.now("failed", error.what)
                watch(steps, step)
                raise
            except AwsUnreachable as error:
                silent_since = silent_since if silent_since is not None else now
                if now - silent_since > PATIENCE:
                    raise
                step.now(step.state, f"no answer from AWS, still trying: {error.what}")
                ended = False
            if ended:
                over.add(step.key)
                step.ended = clock.monotonic()
            due[step.key] = clock.monotonic() + step.pause()
            watch(steps, step)
