"""When a run saves, what a checkpoint holds beside the weights, and when one became visible."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from trainwright.train.guards import Watchdog
from trainwright.train.record import Record, State
from trainwright.train.setup import Parts
from trainwright.train.world import World

ORDER_KEYS = ("data", "sequence", "seed", "holdout", "shuffle")  # options that determine the order of the samples


def data_order(parts: Parts) -> dict[str, Any]:
    """What determines the order of the samples, as JSON types. Data counts by content: it may have moved."""
    order = {k: getattr(parts.config, k) for k in ORDER_KEYS} | {"data": parts.loader.samples.identity}
    return json.loads(json.dumps(order))


class Saver:
    """The saves of one run."""

    def __init__(self, parts: Parts, record: Record, world: World, watchdog: Watchdog) -> None:
        self.parts, self.record, self.world, self.watchdog = parts, record, world, watchdog
        self.saved_at, self.saved_time = -1, time.monotonic()
        self.visible: int | None = None  # the newest checkpoint whose completion is in the journal

    def due_by_time(self) -> bool:
        every = self.parts.interval.seconds
        if not every or not self.world.first or time.monotonic() - self.saved_time < every:
            return False
        self.saved_time = time.monotonic()  # one vote, one save: the result of this vote arrives a step later
        return True

    def due_at(self, step: int) -> bool:
        every = self.parts.interval.steps
        return bool(every) and step % every == 0

    def save(self, state: State, recent: Iterable[float]) -> bool:
        """Save this step; False where it is saved already, or where nothing is. `recent`: losses, for the guard."""
        if not self.parts.saves or self.saved_at == state.step:
            return False
        samples = self.parts.loader.samples
        tokenizer, exchanged = samples.tokenizer_id, samples.added_tokens().exchanged
        classes = self.parts.objective.classes
        record = {
            "state": {**asdict(state), "productive": self.record.productive(state)},
            "order": data_order(self.parts),
            "recent": list(recent),
            "config": asdict(self.parts.config),
            "tokenizer": asdict(tokenizer) if tokenizer is not None else None,
            **({"exchanged": exchanged} if exchanged is not None else {}),
            **({"classes": asdict(classes)} if classes is not None else {}),
            "world": self.world.size,
        }
        if self.parts.base is not None:
            record["base"] = asdict(self.parts.base)
        with self.watchdog.paused():  # the previous save may still be running
            stall = self.parts.checkpointer.save(state.step, self.parts.engine.state_dict(), record)
        self.record.timings.stall += stall
        self.saved_at, self.saved_time = state.step, time.monotonic()
        self.record.journal.event("save", state.step, stall_s=round(stall, 4))
        return True

    def wait(self) -> None:
        """Until the last save is visible."""
        if self.parts.saves:
            with self.watchdog.paused():
                self.parts.checkpointer.wait()
            self.note_visible()

    def note_visible(self) -> None:
        """Note a checkpoint that became complete: from then on this run must never start over silently."""
        saved = self.parts.checkpointer.saved
        if saved is not None and saved != self.visible:
            self.record.journal.event("checkpoint", saved, where=self.parts.checkpointer.store.where)
            self.visible = saved
