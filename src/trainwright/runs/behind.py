"""Says that a run falls behind its prediction, for trainers that do not say so themselves: whoever watches the run
reads its steps, and writes the event into its folder once per cause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainwright.runs.store import Run
from trainwright.train.expectation import Behind, BehindWatch, said_in

FILE = "events.jsonl"


class RunBehind:
    """Takes the new steps of a run; gives what is new to say, and keeps it in the run's events."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.watch = BehindWatch(run.folder, sorted(said_in(run.folder)))
        # Our trainer writes metrics.jsonl and says it itself, with more to go by.
        self.active = (run.folder / "prediction.json").exists()

    def take(self, steps: Iterable[Mapping[str, Any]]) -> list[Behind]:
        if not self.active or (self.run.folder / "config.json").exists():
            return []
        new = [behind for step in steps if (behind := self.watch.take(step)) is not None]
        already = said_in(self.run.folder) if new else set()
        for behind in new:
            if behind.cause not in already:
                self._write(behind)
        return new

    def _write(self, behind: Behind) -> None:
        event = {"time": time.time(), "source": "watch", "event": "behind", "step": behind.step, **behind.facts()}
        with (self.run.folder / FILE).open("a", encoding="utf-8") as events:
            events.write(json.dumps(event) + "\n")
