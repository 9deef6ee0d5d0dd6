"""The training loop: from the first step, or from the newest complete checkpoint, to the last."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

from trainwright.errors import UserError
from trainwright.health.stragglers import describe
from trainwright.health.watch import StepWatch
from trainwright.train.base_pin import RANDOM
from trainwright.train.checkpoint import faults
from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import Batch
from trainwright.train.data.loader import Loader, StepData
from trainwright.train.data.shuffle import mix
from trainwright.train.diagnosis import GarbageCollector
from trainwright.train.guards import LOSS_WINDOW, MAX_REWINDS, LossGuard, RunFailed, Watchdog, user_facing
from trainwright.train.models.tokenizer_match import base_remarks
from trainwright.train.profile import StepProfiler
from trainwright.train.readback import Readback
from trainwright.train.record import IntervalTimings, Record, State, Step
from trainwright.train.remarks import data_line, remarks
from trainwright.train.resume import RestoredState, Resumer
from trainwright.train.saving import Saver, data_order
from trainwright.train.setup import assemble
from trainwright.train.signals import CLOSED_OUTPUT, StopRequest, Vote
from trainwright.train.world import World, join_world, on_all_ranks, restarted

ADVICE = "lower --lr, or inspect the samples named in events.jsonl"


@dataclass(frozen=True)
class Pending:
    """A step that was launched and whose loss and norm have not been read yet."""

    step: int
    tokens: int
    lr: float
    values: Readback  # loss and norm


def train(config: TrainConfig) -> int:
    """Run to the end; the exit status."""
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with join_world(config.device, 2 * config.watchdog, config.startup_timeout) as world:
        try:
            trainer = Trainer(config, world)
        except Exception as error:
            folder = Path(config.folder) if config.folder else None
            shown = user_facing(error, world.device, config.micro_batch, folder, config.sequence)
            raise shown from (error if shown is not error else error.__cause__)
        return trainer.run()


class Trainer:
    """One run on one rank."""

    def __init__(self, config: TrainConfig, world: World) -> None:
        self.world = world
        self.parts = assemble(config, world)
        self.config, self.engine, self.folder = self.parts.config, self.parts.engine, self.parts.folder
        self.state = State()
        self.record = Record(self.config, self.parts.objective, world)
        self.journal, self.console = self.record.journal, self.record.console
        on_gpu = world.device.type == "cuda"
        self.guard = LossGuard(self.config.on_nan, self.config.on_spike, self.config.spike_factor, on_device=on_gpu)
        self.request, self.vote = StopRequest(self.parts.saves), Vote(world.size)
        self.console.on_closed = partial(self.request, CLOSED_OUTPUT)
        self.watchdog = Watchdog(self.config.watchdog, self.folder, world.rank)
        self.step_watch = StepWatch(self.folder, world.device)
        self.profiler = StepProfiler(self.folder, world.rank, self.config.profile)
        self.saver = Saver(self.parts, self.record, world, self.watchdog)
        self.rewinds = 0  # since the last new checkpoint
        # On a GPU a step's loss is read while the next step runs, so that the CPU stays ahead.
        self.deferred = on_gpu and not self.guard.before_update
        self.pending: Pending | None = None
        self.resumer = Resumer(self.parts, self.record, data_order(self.parts), batch_given=bool(config.batch))
        self.garbage = GarbageCollector()

    def run(self) -> int:
        """Resume, train and save; writes result.json whatever happens."""
        begun = False
        try:
            with self.request.listening(self.config.spot_notices):
                self._start()
                begun = True
                with self.garbage.controlled():
                    status = self._train()
                self._finish(status)
            return status
        except BaseException as error:
            sequence = 0 if self.parts.objective.counts_samples else self.config.sequence
            shown = user_facing(error, self.world.device, self.config.micro_batch, self.folder, sequence)
            if begun and isinstance(shown, UserError):
                shown = RunFailed(shown.what, where=shown.where, fix=shown.fix)
            self._fail(shown)
            raise shown from (error if shown is not error else error.__cause__)
        finally:
            self.watchdog.close()
            self.parts.checkpointer.close()
            self.record.close()

    def _start(self) -> None:
        # When a scheduler restarts the command, `--resume STEP` must not rewind the run a second time.
        resume = "auto" if restarted(os.environ) else self.config.resume
        with self.watchdog.paused():
            on_all_ranks(self.world, self._open_folder if self.world.first else lambda: None)
            restored = self.resumer.start(resume)
            self._restore(restored)
            on_all_ranks(self.world, self._describe_run if self.world.first else lambda: None)
        self.record.start(self.state.step, self.config.parallel, afresh=resume == "never")
        noted = remarks(self.config, self.engine.plan, self.parts.shape, self.world.device.type)
        if self.world.first and restored is None and self.config.base not in ("", RANDOM):
            noted += base_remarks(self.config.base, self.parts.loader.samples)
        for line in (
            *self.engine.description(),
            *noted,
            data_line(self.config, self.parts.loader.samples, self.parts.objective),
            *self.parts.objective.description(),
        ):
            self.console.say(line)
        if self.state.step >= self.config.steps:
            reached = f"already at step {self.state.step} and --steps is {self.config.steps}"
            self.console.say(f"{reached}: nothing left to train; a larger --steps continues")

    def _open_folder(self) -> None:
        """On rank 0. What an interrupted save left goes first: it may be what keeps the disk full."""
        self.record.claim()
        if self.parts.saves:
            self.parts.checkpointer.store.sweep()
        self.record.open()

    def _describe_run(self) -> None:
        """On rank 0, once the weights are loaded: they may have numbered the classes, and a refused start must leave
        neither its configuration nor its tokenizer in the folder of a run that others continue."""
        samples, classes = self.parts.loader.samples, self.parts.objective.classes
        self.record.write_configuration()
        self.record.keep_tokenizer(samples.tokenizer(), samples.tokenizer_settings(), samples.added_tokens())
        self.record.write_classes(classes.names if classes is not None else ())

    def _restore(self, restored: RestoredState | None) -> None:
        if restored is not None:
            self.state, self.saver.saved_at = restored.state, restored.saved_at
            self.guard.recent = deque(restored.recent, maxlen=LOSS_WINDOW)

    def _train(self) -> int:
        """All steps; returns 0 at the end, or the exit status when asked to stop."""
        while True:
            rewound = False
            with contextlib.closing(self.parts.loader.steps(self.state.seen)) as steps:
                self.record.timings = IntervalTimings()
                while self.state.step < self.config.steps and not rewound:
                    stop, save = self.vote(bool(self.request.reason), self.saver.due_by_time())
                    if save and not self._read_pending():
                        rewound = True
                        continue
                    if save:
                        self._save()
                    if stop:
                        return self._stop_early()
                    self.profiler.before(self.state.step + 1)
                    rewound = not self._train_step(steps)
                    self.profiler.after(self.state.step)
                    self.record.timings.evaluating += self.profiler.take_overhead()
                if not rewound:
                    rewound = not self._read_pending()
            if not rewound:
                self.vote.close()
                return 0

    def _train_step(self, steps: Iterator[StepData]) -> bool:
        """One step; False when the run was rewound."""
        asked = time.perf_counter()
        with record_function("data wait"):
            data = next(steps)
        waited = time.perf_counter() - asked
        self.record.timings.data_wait += waited
        self.step_watch.wait(waited)
        if self.config.log_samples:
            self.record.samples(self.state.step + 1, self.engine.data_rank, data)
        # Seeded by step and rank, so that no generator state has to be saved.
        torch.manual_seed(mix(self.state.step, mix(self.world.rank, self.config.seed)))
        lr = self.parts.schedule(self.state.step)
        loss, _ = self.engine.forward_backward(data.microbatches)
        faults.point("mid-step")
        self.state.seen = data.seen
        self.state.tokens += self.config.batch * self.record.tokens
        action = "ok"
        if self.guard.before_update:
            action = self._apply_guard(*self.guard.judge(float(loss), float(self.engine.gradient_norm())))
        if action == "rewind":
            return False
        if action == "skip":
            self.engine.discard()
            norm = torch.tensor(math.nan)
        else:
            self.parts.checkpointer.stager.wait_before_update()
            with record_function("optimizer"):
                norm = self.engine.optimizer_step(lr)
        self.state.step += 1
        self.record.timings.steps += 1
        self._report_stragglers()
        before, self.pending = self.pending, Pending(self.state.step, self.state.tokens, lr, Readback(loss, norm))
        fine = self._process_result(before) if before else True
        if not self.deferred:
            fine = fine and self._read_pending(evaluate=self._evaluation_due())
        self.watchdog.beat()
        self.garbage.step()
        return fine and self._after_step()

    def _report_stragglers(self) -> None:
        """Log a rank that delays the others, once it begins to."""
        for one in self.step_watch.step(self.state.step):
            facts = {"rank": one.rank, "host": one.host, "cause": one.cause, "why": one.message}
            self.journal.event("straggler", self.state.step, **facts)
            self.console.say(describe(one))

    def _after_step(self) -> bool:
        """Saves and evaluations due at this step. They read the weights, so its loss is checked first."""
        save, evaluate = self.saver.due_at(self.state.step), self._evaluation_due()
        if (evaluate or save or self.state.step == self.config.steps) and not self._read_pending(evaluate):
            return False
        if save:
            self._save()
        self.parts.checkpointer.raise_errors()
        self.saver.note_visible()
        return True

    def _evaluation_due(self) -> bool:
        return bool(self.config.eval_every) and self.state.step % self.config.eval_every == 0

    def _read_pending(self, evaluate: bool = False) -> bool:
        """Read the loss and norm of the last step."""
        before, self.pending = self.pending, None
        return self._process_result(before, evaluate) if before else True

    def _process_result(self, done: Pending, evaluate: bool = False) -> bool:
        """Check a finished step and log it; False when the run was rewound."""
        loss, norm = done.values.read()
        if not self.guard.before_update:
            action = self._apply_guard(*self.guard.judge(loss, norm))
            if action == "rewind":
                return False
            self.engine.optimizer.steps -= action == "skip"  # the device made no update
        if evaluate or done.step % self.config.log_every == 0 or done.step == self.config.steps:
            eval_loss, scores = self._evaluate() if evaluate else (None, None)
            self._log_step(Step(done.step, done.tokens, done.lr, loss, norm, eval_loss, scores))
        return True

    def _apply_guard(self, action: str, why: str) -> str:
        """Carry out the guard's decision."""
        if action == "ok":
            return action
        step, first = self.state.step, self.state.seen - self.config.batch
        self.journal.event("guard", step, action=action, why=why, samples=[first, self.state.seen])
        self.console.say(f"step {step}: {why}: {action}")
        if action == "stop":
            raise UserError(f"stopped at step {step}: {why}", where=str(self.folder), fix=ADVICE)
        if action == "rewind":
            self._rewind(why)
        return action

    def _rewind(self, why: str) -> None:
        """Restore the newest checkpoint, and continue with the data after the bad batch."""
        self.state.rewinds += 1
        self.rewinds += 1
        self.engine.discard()
        self.pending = None
        if self.rewinds <= MAX_REWINDS:
            seen, tokens, rewinds = self.state.seen, self.state.tokens, self.state.rewinds
            with self.watchdog.paused():
                self.resumer.checkpoints.wait()
                restored = self.resumer.load(None)
            if restored:
                self._restore(restored)
                self.state.seen, self.state.tokens, self.state.rewinds = seen, tokens, rewinds
                self.journal.set_metrics_aside_after(self.state.step)
                return
            fix = f"`skip` instead of `rewind`, or --checkpoint-every with fewer steps; {ADVICE}"
            raise UserError(f"cannot rewind: {why}, and there is no checkpoint yet", where=str(self.folder), fix=fix)
        what = f"cannot rewind: {why}, after {self.rewinds - 1} rewinds without a new checkpoint"
        raise UserError(what, where=str(self.folder), fix=ADVICE)

    def _evaluate(self) -> tuple[float | None, dict[str, float] | None]:
        """The loss on the evaluation data, and what else the objective measures there."""
        loader = self.parts.eval_loader
        if loader is None:
            return None, None
        began = time.perf_counter()
        loss = self.engine.evaluate(self._eval_batches(loader))
        scores = self.parts.objective.scores(self.engine, loader, loss)
        self.record.timings.evaluating += time.perf_counter() - began
        return loss, scores

    def _eval_batches(self, loader: Loader) -> Iterator[Batch]:
        count = min(self.config.eval_batches * self.config.batch, loader.samples.epoch_samples)
        for batch in loader.evaluation(count):
            yield batch
            self.watchdog.beat()

    def _log_step(self, done: Step) -> None:
        self.record.log_step(done, self.state)

    def _save(self, now: bool = False) -> None:
        """Save this step, unless it is saved already; `now` waits until it is visible."""
        if self.saver.save(self.state, self.guard.recent):
            self.rewinds = 0
        if now:
            self.saver.wait()

    def _stop_early(self) -> int:
        """Save and exit, for a scheduler to restart the command."""
        self._read_pending()
        self._save(now=True)
        reason = self.request.reason or "requested by another rank"
        if not self.parts.saves:
            raise UserError(
                f"stopped at step {self.state.step} by {reason}, and nothing was saved",
                where=str(self.folder),
                fix="--checkpoint-every 15min instead of never",
            )
        self.journal.event("stop", self.state.step, reason=reason)
        self.console.say(f"stopping at step {self.state.step} ({reason}): saved, start again to continue")
        self.vote.close()
        return self.request.status

    def _finish(self, status: int) -> None:
        if status == 0:
            self._save(now=True)
            self.journal.event("done", self.state.step)
        self._write_result("done" if status == 0 else "requeue", status)

    def _fail(self, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        status = error.status if isinstance(error, UserError) else 1
        try:
            self.journal.event("failed", self.state.step, reason=reason)
            self._write_result("failed", status, reason=reason)
        except (OSError, UserError) as unwritten:  # must not hide why the run ended
            self.console.say(f"the run folder does not say how this run ended: {str(unwritten).splitlines()[0]}")

    def _write_result(self, status: str, code: int, **more: Any) -> None:
        self.record.result(status, code, self.state, self.parts.checkpointer.saved, **more)
