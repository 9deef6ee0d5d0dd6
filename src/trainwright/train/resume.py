"""Where a run continues: at the newest checkpoint, at the step given by --resume, or at one in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.errors import UserError
from trainwright.train.base_pin import describe, difference, pin_in
from trainwright.train.base_weights import load_base, without_classifier
from trainwright.train.checkpoint.manifest import Manifest, base_place, classes_saved, shape_in
from trainwright.train.checkpoint.stores import CheckpointStore, FolderStore, set_aside_newer_than, step_name
from trainwright.train.data.image_classes import AS_NUMBERED, NOT_NAMED, ImageClasses
from trainwright.train.models.tokenizer_match import require_same_tokenizer
from trainwright.train.record import Record, State
from trainwright.train.setup import Parts
from trainwright.train.world import broadcast_from_first, on_all_ranks

ORDER_CHANGED = "the data or its order changed since the checkpoint: sample counting restarts at 0"
LARGER = {"dino", "dpo"}  # objectives that train the model as a part of something larger


@dataclass(frozen=True)
class RestoredState:
    """What a checkpoint holds beside the weights, which are in the engine already."""

    state: State
    recent: list[float]  # losses for the loss guard
    saved_at: int  # the step that is saved already; -1 where it came from another store


class Resumer:
    """Restores a run from its checkpoints. `order` is what determines the order of the samples; `batch_given` says that
    the batch was asked for, and is no default."""

    def __init__(self, parts: Parts, record: Record, order: dict[str, Any], batch_given: bool = False) -> None:
        self.parts, self.record, self.order, self.batch_given = parts, record, order, batch_given
        self.checkpoints = parts.checkpointer

    def start(self, resume: str) -> RestoredState | None:
        """The state to continue from, by --resume: auto, never, or a step."""
        if self.parts.saves:
            self.checkpoints.prepare_saving(self.parts.engine.state_dict())
        if resume == "auto":
            restored = self.load(None) or self._from_run_folder() or self._from_import()
            if restored is None:
                on_all_ranks(self.record.world, self._require_no_history)
            return restored
        restored = None if resume == "never" else self.load(int(resume)) or self._from_import()
        self._set_aside_newer(restored.state.step if restored else -1)
        return restored

    def load(self, step: int | None) -> RestoredState | None:
        """Restore the newest complete checkpoint, or that of a step; None where there is none."""
        if self._import_is_a_base(self.checkpoints.store):
            return None
        tensors = self.parts.engine.state_dict()
        loaded = self.checkpoints.load(tensors, step, self._require_same_run)
        if loaded is None:
            return None
        self.parts.engine.load_state_dict(tensors)
        manifest, notes = loaded
        notes += self._use_classes(manifest)
        saved, state = manifest.trainer, self._saved_state(manifest)
        if state.seen and saved["order"] != self.order:
            notes.append(ORDER_CHANGED)
            state.seen = 0
        batch = self.parts.config.batch
        before = saved.get("config", {}).get("batch", batch)
        if before != batch:
            advice = "" if self.batch_given else "; set --batch to keep it"
            notes.append(f"a step had {before} samples and now has {batch}{advice}")
        for note in notes:
            self._note(note, manifest.step)
        self.record.console.say(f"continuing from step {manifest.step} ({self.checkpoints.store.where})")
        self.record.journal.event("resume", manifest.step, seen=state.seen)
        return RestoredState(state, saved["recent"], manifest.step)

    def _saved_state(self, manifest: Manifest) -> State:
        try:
            missing = [key for key in ("order", "recent") if key not in manifest.trainer]
            if missing:
                raise KeyError(missing[0])
            state = State(**manifest.trainer["state"])
            if "tokens" not in manifest.trainer["state"]:  # of a version that derived them from the samples
                now = self.parts.config.sequence
                before = manifest.trainer.get("config", {}).get("sequence", now)
                state.tokens = state.seen * self.record.tokens * before // now
            return state
        except (KeyError, TypeError) as error:
            raise UserError(
                f"the manifest of step {manifest.step} is not one of this trainer ({error})",
                where=self.checkpoints.store.where,
                fix="another checkpoint by --resume STEP, or start over with --resume never",
            ) from error

    def _from_run_folder(self) -> RestoredState | None:
        """A run that now saves elsewhere continues from its folder: from `train import`, or from an earlier start."""
        store, own = self.checkpoints.store, FolderStore(self.parts.folder / "checkpoints")
        if store.where == own.where:
            return None
        self.checkpoints.store = own
        try:
            restored = self.load(None)
        finally:
            self.checkpoints.store = store
        return restored and RestoredState(restored.state, restored.recent, saved_at=-1)

    def _from_import(self) -> RestoredState | None:
        """Begin with weights of `train import` as with --base: in this run the model is a part of something larger."""
        store = FolderStore(self.parts.folder / "checkpoints")
        if not self._import_is_a_base(store):
            return None
        on_all_ranks(self.record.world, lambda: self._require_same_tokenizer({}))
        engine, weights = self.parts.engine, str(store.root / step_name(0))
        on_all_ranks(self.record.world, lambda: load_base(engine, describe(weights)))
        self.parts.objective.based(engine)
        self.record.journal.event("resume", 0, seen=0)
        return RestoredState(State(), [], saved_at=0)

    def _import_is_a_base(self, store: CheckpointStore) -> bool:
        """Whether the newest checkpoint is an import without the heads that this run trains."""

        def newest() -> str:
            steps = store.complete_steps() if isinstance(store, FolderStore) else []
            manifest = store.manifest(0) if steps and steps[0] == 0 else None
            if manifest is None or "config" in manifest.trainer:
                return ""
            bare = without_classifier(shape_in(manifest), "head.weight")
            return "base" if bare or not self.parts.objective.base_name("head.weight") else ""

        world = self.record.world
        return bool(broadcast_from_first(world, newest() if world.first else ""))

    def _require_same_run(self, manifest: Manifest) -> None:
        on_all_ranks(self.record.world, lambda: self._require_same(manifest))

    def _require_same(self, manifest: Manifest) -> None:
        self._require_same_objective(manifest)
        self._require_same_classes(manifest)
        self._require_same_tokenizer(manifest.trainer)
        pin, base = pin_in(manifest), self.parts.base
        if pin is not None and base is not None and difference(pin, base):  # another process saved it since the start
            what = f"step {manifest.step} was trained on another base ({pin}): {difference(pin, base)}"
            raise UserError(what, where=self.checkpoints.store.where, fix="start the same command again")

    def _require_same_classes(self, manifest: Manifest) -> None:
        """The outputs of a classifier stand for certain classes."""
        classes, record = self.parts.objective.classes, manifest.trainer.get("classes")
        apart = ImageClasses.saved(record).differences(classes) if classes is not None and record else ""
        if classes is not None and not record and not classes.numbered and len(self.parts.config.data) > 1:
            apart = "it names none, and an earlier version read the first folder of --data only"
        if apart:
            raise UserError(
                f"the data has other classes than the checkpoint: {apart}",
                where=f"{self.checkpoints.store.where}, step {manifest.step}",
                fix=f"--data with the same classes, or another --folder with --base {self.parts.folder}",
            )

    def _use_classes(self, manifest: Manifest) -> list[str]:
        """Number the classes as the checkpoint does; lines for the log."""
        classes, names = self.parts.objective.classes, classes_saved(manifest)
        if classes is None:
            return []
        if not names:
            return [] if classes.numbered else [f"the checkpoint of step {manifest.step} {NOT_NAMED}"]
        self.parts.objective.use_classes(names)
        imported = "config" not in manifest.trainer
        return [f"the classes of the imported weights {AS_NUMBERED}"] if classes.numbered and imported else []

    def _require_same_tokenizer(self, trained: Mapping[str, Any]) -> None:
        """Other tokens would be other words, and an export has the tokenizer that the run began with."""
        parts, samples = self.parts, self.parts.loader.samples
        if not self.record.world.first:  # the run folder may be on the first node only
            return
        require_same_tokenizer(parts.folder, trained.get("tokenizer"), samples, " ".join(parts.config.data))
        if samples.added_tokens().exchanged is not None and "config" in trained and "exchanged" not in trained:
            what = "the checkpoint is of an earlier version, in which padding and a word of the text had one id"
            raise UserError(what, where=str(parts.folder), fix="another --folder")

    def _require_same_objective(self, manifest: Manifest) -> None:
        """Objectives name their tensors differently: one does not continue the other's run."""
        config, wanted = manifest.trainer.get("config", {}), self.parts.config.objective
        saved = config.get("objective") or wanted
        if saved != wanted and {saved, wanted} & LARGER:
            base = f" --base {base_place(manifest)}" if saved == "dpo" else ""
            raise UserError(
                f"the checkpoint was trained for the objective {saved}, this run has the objective {wanted}",
                where=self.checkpoints.store.where,
                fix=f"--objective {saved}{base}, or another --folder with --base {self.parts.folder}",
            )

    def _require_no_history(self) -> None:
        """A run that has saved a checkpoint does not start over because its checkpoints are gone."""
        last = self.record.last_checkpoint
        if last is not None:
            raise UserError(
                f"this run saved step {last['step']} to {last.get('where', 'its checkpoints')}, "
                f"but there is no checkpoint in {self.checkpoints.store.where}",
                where=str(self.parts.folder),
                fix="restore the checkpoints or correct --checkpoint-to; --resume never starts over",
            )

    def _set_aside_newer(self, step: int) -> None:
        """Otherwise the next start would resume from them, and --keep-last would count them among the newest."""
        store = self.checkpoints.store
        newer = set_aside_newer_than(store, step) if self.record.world.first else []
        if newer:
            self._note(f"checkpoints of steps {min(newer)} to {max(newer)} are set aside ({store.where})", max(0, step))

    def _note(self, text: str, step: int) -> None:
        self.record.console.say(text)
        self.record.journal.event("note", step, text=text)
