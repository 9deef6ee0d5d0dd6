"""Where a run goes on: from the newest checkpoint, from a step it goes back to, or from where it saved before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.train.checkpoint.places import Folder, set_aside_after
from trainwright.train.record import Record, State
from trainwright.train.setup import Parts

CHANGED = "the data or its order changed since the checkpoint: samples are counted from 0 again"


@dataclass(frozen=True)
class Found:
    """What a checkpoint says beside the weights, which the engine has taken over already."""

    state: State
    recent: list[float]  # the losses that say what is usual
    saved_at: int  # the step that needs no saving; -1 where it was found elsewhere


class Past:
    """The checkpoints of a run, to go on from. `order` is what fixes which sample comes when."""

    def __init__(self, parts: Parts, record: Record, order: dict[str, Any]) -> None:
        assert parts.checkpointer is not None
        self.parts, self.record, self.order = parts, record, order
        self.checkpoints = parts.checkpointer

    def begin(self, resume: str) -> Found | None:
        """What a start goes on from, as --resume says: auto, never, or a step."""
        self.checkpoints.make_ready(self.parts.engine.state_dict())
        if resume == "auto":
            return self.load(None) or self._from_run_folder()
        found = None if resume == "never" else self.load(int(resume))
        self._leave_the_future_after(found.state.step if found else -1)
        return found

    def load(self, step: int | None) -> Found | None:
        """Take over the newest whole checkpoint, or that of a step; None where there is none."""
        tensors = self.parts.engine.state_dict()
        found = self.checkpoints.load(tensors, step)
        if found is None:
            return None
        self.parts.engine.load_state_dict(tensors)
        manifest, notes = found
        saved, state = manifest.trainer, State(**manifest.trainer["state"])
        if state.seen and saved["order"] != self.order:
            notes.append(CHANGED)
            state.seen = 0
        batch = self.parts.config.batch
        before = saved.get("config", {}).get("batch", batch)
        if before != batch:
            notes.append(f"a step had {before} samples before and has {batch} now; --batch fixes it")
        for note in notes:
            self._note(note, manifest.step)
        self.record.console.say(f"continuing from step {manifest.step} ({self.checkpoints.place.where})")
        self.record.journal.event("resume", manifest.step, seen=state.seen)
        return Found(state, saved["recent"], manifest.step)

    def _from_run_folder(self) -> Found | None:
        """A run that saves elsewhere from now on goes on from what is here: from `train import`, or from before."""
        place, own = self.checkpoints.place, Folder(self.parts.folder / "checkpoints")
        if place.where == own.where:
            return None
        self.checkpoints.place = own
        try:
            found = self.load(None)
        finally:
            self.checkpoints.place = place
        return found and Found(found.state, found.recent, saved_at=-1)

    def _leave_the_future_after(self, step: int) -> None:
        """Else the next start would find it again, and --keep-last would count it among the newest."""
        place = self.checkpoints.place
        newer = set_aside_after(place, step) if self.record.world.first else []
        if newer:
            self._note(f"checkpoints of steps {min(newer)} to {max(newer)} are set aside ({place.where})", max(0, step))

    def _note(self, text: str, step: int) -> None:
        self.record.console.say(text)
        self.record.journal.event("note", step, text=text)
