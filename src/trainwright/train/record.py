"""The record of a run: measurements between two log lines, where lines are written, and the result at the end."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data.format import TokenizerId, remove_unfinished, write_durably
from trainwright.train.data.loader import StepData
from trainwright.train.data.special_tokens import SampleTokens
from trainwright.train.disk import append_line
from trainwright.train.expectation import BehindWatch, said_in, throttled_clocks
from trainwright.train.flops import mfu
from trainwright.train.metrics import Console, Journal, Metrics, Trackers, memory_gb, peak_flops, versions
from trainwright.train.models.hf_tokenizer import keep_tokenizer
from trainwright.train.models.saved_weights import tokenizer_folder
from trainwright.train.objectives.base import Objective
from trainwright.train.world import World

CLASSES = "classes.json"
LOCK_TIMEOUT = 120.0  # seconds to wait for another run to release the folder


@dataclass
class State:
    """Progress of the run; part of every checkpoint."""

    step: int = 0
    seen: int = 0  # samples the whole job has seen, in the order of the current data
    tokens: int = 0  # that the whole job has seen, of all data it had
    productive: float = 0.0  # seconds spent in steps that count
    rewinds: int = 0


@dataclass
class IntervalTimings:
    """Measurements since the last log line."""

    began: float = field(default_factory=time.perf_counter)
    steps: int = 0
    data_wait: float = 0.0
    stall: float = 0.0
    evaluating: float = 0.0


@dataclass(frozen=True)
class Step:
    """A finished step and its metrics."""

    step: int
    tokens: int  # seen by the whole job
    lr: float
    loss: float
    norm: float
    eval_loss: float | None = None
    scores: dict[str, float] | None = None


class Record:
    """Everything a run records. Rank 0 writes; samples are logged by every rank."""

    def __init__(self, config: TrainConfig, objective: Objective, world: World) -> None:
        self.config, self.world, self.folder = config, world, Path(config.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write into the run folder: {error.strerror}", where=config.folder, fix="another --folder"
            ) from error
        self.lock: TextIO | None = None
        self.trackers: Trackers | None = None
        self.journal = Journal(self.folder, world.first)
        self.console = Console(
            config.steps, world.first, samples_of=objective.tokens_per_sample if objective.counts_samples else 0
        )
        self.tokens, self.flops = objective.tokens_per_sample, objective.flops_per_token()
        self.peak = (peak_flops(world.device) or 0.0) * world.size
        self.first_start = time.time()
        self.last_checkpoint: dict[str, Any] | None = None  # of earlier starts, where this rank is the first
        self.timings = IntervalTimings()
        self.last: Metrics | None = None
        self.behind = BehindWatch(self.folder, clocks=throttled_clocks)

    def claim(self) -> None:
        """First of all, on rank 0: lock the folder for this run, and remove what a killed one left half written."""
        self.lock = self.lock or self._lock()
        for name in ("config.json", "result.json", "metrics.jsonl", CLASSES):
            remove_unfinished(self.folder / name)

    def open(self) -> None:
        """Before anything is restored, on rank 0."""
        self.last_checkpoint = self.journal.last_checkpoint()
        self.journal.remove_result()

    def write_configuration(self) -> None:
        """On rank 0: what this run is."""
        write_durably(self.folder / "config.json", self.config.to_json().encode())

    def keep_tokenizer(
        self,
        tokenizer: tuple[TokenizerId | None, bytes | None],
        settings: dict[str, bytes],
        added: SampleTokens | None = None,
    ) -> None:
        """On rank 0: the tokenizer of this run."""
        if tokenizer[0] is not None:
            base = tokenizer_folder(self.config.base)
            keep_tokenizer(self.folder, tokenizer[0], tokenizer[1], added or SampleTokens(), settings, base)

    def write_classes(self, names: Sequence[str]) -> None:
        """On rank 0: which class each output of the model stands for, where that is known."""
        if not names:
            (self.folder / CLASSES).unlink(missing_ok=True)
            return
        write_durably(self.folder / CLASSES, (json.dumps(names, ensure_ascii=False, indent=1) + "\n").encode())

    def _lock(self) -> TextIO:
        """Lock the journal, so that no second run writes here. The lock of a dead node may outlive it for a while."""
        handle = (self.folder / "events.jsonl").open("a", encoding="utf-8")
        deadline = time.monotonic() + LOCK_TIMEOUT
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        "another run is using this folder",
                        where=str(self.folder),
                        fix="another --folder, or stop that run first",
                    ) from error
            except OSError:
                return handle  # a file system without locks
            if not said:
                self.console.say(f"another run is using {self.folder}: waiting up to {LOCK_TIMEOUT:.0f} s")
                said = True
            time.sleep(0.2)

    def start(self, step: int, plan: str, afresh: bool) -> None:
        """Record the start at `step`."""
        self.journal.set_metrics_aside_after(step)
        facts = {"world": self.world.size, "plan": plan, "versions": versions(self.world.device)}
        self.journal.event("start", step, **facts, **({"afresh": True} if afresh else {}))
        self.first_start = self.journal.first_start()
        self.behind.said = said_in(self.folder)
        if self.world.first:
            run = f"{self.folder.resolve().name}-{self.first_start:.0f}"
            self.trackers = Trackers(self.folder, asdict(self.config), step, run)

    def close(self) -> None:
        if self.trackers is not None:
            try:
                self.trackers.close()
            except OSError as error:  # must not hide how the run ended
                self.console.say(f"the last metrics may be missing in the trackers: {error}")
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def productive(self, state: State) -> float:
        """Productive seconds of all steps so far, including those since the last line."""
        timings = self.timings
        spent = time.perf_counter() - timings.began - timings.evaluating - timings.data_wait - timings.stall
        return state.productive + max(0.0, spent)

    def log_step(self, done: Step, state: State) -> None:
        """Write one line of metrics to the journal, the console and the trackers, and restart the measurements."""
        timings, self.timings = self.timings, IntervalTimings()
        count = max(1, timings.steps)
        spent = max(self.timings.began - timings.began - timings.evaluating, 1e-9)
        state.productive += max(0.0, spent - timings.data_wait - timings.stall)
        if self.last is not None and timings.steps == 0:
            # The last step of a GPU run was launched, and partly or wholly waited for, in the interval before.
            spent = max(spent, self.last.step_s)
        speed = self.config.batch * self.tokens * count / spent
        self.last = Metrics(
            step=done.step,
            loss=done.loss,
            grad_norm=done.norm,
            lr=done.lr,
            tokens=done.tokens,
            tokens_per_s=speed,
            mfu=mfu(speed, self.flops, self.peak) if self.peak else None,
            step_s=spent / count,
            data_wait_s=timings.data_wait / count,
            checkpoint_stall_s=timings.stall / count,
            memory_gb=memory_gb(self.world.device),
            goodput=min(1.0, state.productive / max(time.time() - self.first_start, 1e-9)),
            time=time.time(),
            eval_loss=done.eval_loss,
            scores=done.scores,
        )
        self.journal.metrics(self.last)
        self.console.line(self.last)
        if self.trackers is not None:
            self.trackers.metrics(self.last)
        if self.world.first:
            self._compare_with_prediction(asdict(self.last))

    def _compare_with_prediction(self, line: dict[str, Any]) -> None:
        """Say, once per cause, that the run is slower than predicted."""
        behind = self.behind.take(line)
        if behind is not None:
            self.journal.event("behind", behind.step, **behind.facts())
            self.console.say(f"slower than predicted ({behind.cause}): {behind.why}")

    def samples(self, step: int, data_rank: int, data: StepData) -> None:
        """Log the samples of the coming step."""
        row = {"step": step, "seen": data.seen, "data_rank": data_rank, "samples": data.samples}
        append_line(self.folder / f"samples-rank{self.world.rank:05d}.jsonl", json.dumps(row))

    def result(self, status: str, code: int, state: State, saved: int | None, **more: Any) -> None:
        """Write result.json."""
        facts = {
            "status": status,
            "exit": code,
            "step": state.step,
            "steps": self.config.steps,
            "world": self.world.size,
            "plan": self.config.parallel,
            "wall_s": round(time.time() - self.first_start, 3),
            "checkpoint": saved,
            "last": asdict(self.last) if self.last else {},
        }
        self.journal.result({**facts, **more})
