"""Asynchronous saving, and loading under any plan: the loop's interface to checkpoints."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainwright.errors import UserError
from trainwright.train.checkpoint import faults
from trainwright.train.checkpoint.manifest import File, Manifest, describe_file, require_same_model
from trainwright.train.checkpoint.staging import Stager, state_bytes
from trainwright.train.checkpoint.stores import CheckpointStore
from trainwright.train.disk import amount, disk_full, no_space

RESTORE = "no complete checkpoint is left: restore one, or start over with --resume never"
GROUP_TIMEOUT = timedelta(hours=1)  # a large upload may take long; a dead peer is noticed at once


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints to keep: the newest `last`, and every multiple of `every` (0: none of those)."""

    last: int = 3
    every: int = 0


class Checkpointer:
    """Asynchronous saves, one at a time; errors of a save are raised by the next call."""

    def __init__(self, store: CheckpointStore, keep: Retention, device: torch.device, model: Mapping[str, Any]) -> None:
        self.store, self.keep, self.model = store, keep, dict(model)
        self.stager = Stager(device)
        self.distributed = dist.is_initialized()
        self.rank = dist.get_rank() if self.distributed else 0
        self.world = dist.get_world_size() if self.distributed else 1
        # Its own group: collectives of a save must not mix with those of training. Gloo, because files are on the CPU.
        self.group = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT) if self.distributed else None
        if not self.distributed:
            warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        cores, neighbours = len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        # Threads (and files) per rank; more do not write faster, and the loop needs its cores.
        self.writers = max(1, min(4, cores // (4 * neighbours)))
        self.saved: int | None = None  # the newest step this process made visible
        self.seconds = 0.0  # duration of the last save in the background
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, step: int, state: dict[str, Any], trainer: Mapping[str, Any]) -> float:
        """Start saving; returns the seconds that training had to wait."""
        began = time.perf_counter()
        self.wait()
        staged = self.stager.stage(state)
        faults.point("staged")
        self._thread = threading.Thread(
            target=self._guarded, args=(step, staged, dict(trainer)), name="trainwright-save", daemon=True
        )
        self._thread.start()
        return time.perf_counter() - began

    def save_now(self, step: int, state: dict[str, Any], trainer: Mapping[str, Any]) -> float:
        """Save and wait until the checkpoint is visible."""
        began = time.perf_counter()
        self.save(step, state, trainer)
        self.wait()
        return time.perf_counter() - began

    def wait(self) -> None:
        """Wait for a running save, and raise its error."""
        self.join()
        self.raise_errors()

    def join(self) -> None:
        """Wait for a running save without raising its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Before the process exits. With one rank, a running save can finish, also after an error; with several, a lost
        rank may block it. With a thread inside torch, Python would abort instead of returning its status."""
        if self.world == 1:
            self.join()
        self.stager.join()

    def raise_errors(self) -> None:
        """Raise the error of a finished save, without waiting for a running one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _guarded(self, step: int, staged: dict[str, Any], trainer: dict[str, Any]) -> None:
        began = time.perf_counter()
        try:
            self.stager.finish()
            self._write(step, staged, trainer)
            self.saved = step
        except BaseException as error:
            shutil.rmtree(self.store.writing(step), ignore_errors=True)  # it would keep a full disk full
            self._error = self._no_space(state_bytes(staged)) if disk_full(error) else error
        self.seconds = time.perf_counter() - began

    def _write(self, step: int, staged: dict[str, Any], trainer: dict[str, Any]) -> None:
        self._on_rank0(lambda: self.store.clean(step))
        folder = self.store.writing(step)
        folder.mkdir(parents=True, exist_ok=True)
        faults.point("mid-save")
        writer = Writer(folder, thread_count=self.writers)
        planner = cached_planner(f"trainwright-{id(self)}", self.distributed)
        save_sharded(
            staged, storage_writer=writer, planner=planner, process_group=self.group, no_dist=not self.distributed
        )
        faults.point("written")
        files = self._collect(step, folder)
        self._on_rank0(lambda: self._publish(step, trainer, files))

    def _collect(self, step: int, folder: Path) -> tuple[File, ...]:
        """Every rank's files with their checksums, once they are stored."""

        def own() -> list[File]:
            mine = sorted(p for p in folder.iterdir() if p.name.startswith(f"__{self.rank}_"))
            if self.rank == 0:
                mine.append(folder / ".metadata")
            with ThreadPoolExecutor(self.writers) as pool:
                described = list(pool.map(describe_file, mine))
            self.store.part(step, [f.name for f in described])
            return described

        return tuple(f for files in self._gather_from_all(own) for f in files)

    def _publish(self, step: int, trainer: dict[str, Any], files: tuple[File, ...]) -> None:
        self.store.publish(step, Manifest(step, self.model, trainer, files))
        whole = self.store.complete_steps()
        for old in whole[max(1, self.keep.last) :]:
            if not self.keep.every or old % self.keep.every:
                self.store.remove(old)

    def _on_rank0(self, act: Callable[[], None]) -> None:
        """Rank 0 acts, and every rank waits for it and shares its error."""
        self._result_of_rank0(act)

    def _result_of_rank0(self, ask: Callable[[], Any]) -> Any:
        """Rank 0's result, on every rank."""
        return self._gather_from_all(ask if self.rank == 0 else lambda: None)[0]

    def _gather_from_all(self, act: Callable[[], Any]) -> list[Any]:
        """The results of `act` on every rank; an error of one is raised on all, so that none waits for a lost rank."""
        error: BaseException | None = None
        value: Any = None
        try:
            value = act()
        except Exception as caught:
            error = caught
        if not self.distributed:
            if error:
                raise error
            return [value]
        answers: list[Any] = [None] * self.world
        dist.all_gather_object(answers, (value, portable(error)), group=self.group)
        for _, raised in answers:
            if raised is not None:
                raise error or raised
        return [answer for answer, _ in answers]

    def prepare_saving(self, state: dict[str, Any]) -> None:
        """Before the first step: require disk space for one checkpoint, and allocate host memory in the background."""
        needed, free = state_bytes(state), self.store.free()
        if free is not None and free < needed:
            raise self._no_space(needed)
        self.stager.reserve(state)

    def _no_space(self, needed: int) -> UserError:
        fix = "free the disk, keep fewer (--keep-last), or use --checkpoint-to; older ones are complete"
        return no_space(self.store.writing(0).parent, amount(needed), fix, " for a checkpoint")

    def load(
        self,
        state: dict[str, Any],
        step: int | None = None,
        require: Callable[[Manifest], None] = lambda manifest: None,
    ) -> tuple[Manifest, list[str]] | None:
        """Fill `state` from the newest complete checkpoint (or from `step`); None where there is none. `require` raises
        where a checkpoint of the same model is still not one of this run.

        Also returns a note for each newer checkpoint that was skipped because it is damaged."""
        steps, damaged = self._result_of_rank0(lambda: (self.store.complete_steps(), self.store.damaged_steps()))
        notes = {number: f"checkpoint of step {number} is damaged ({why})" for number, why in damaged.items()}
        if step is not None:
            if step not in steps:
                what = notes.get(step) or f"no complete checkpoint of step {step}"
                raise UserError(what, where=self.store.where, fix=other_steps(steps))
            steps, notes = [step], {}
        for candidate in steps:
            manifest = self._result_of_rank0(partial(self.store.manifest, candidate))
            require_same_model(manifest, self.model, f"{self.store.where}, step {candidate}")
            require(manifest)
            wrong = self._gather_from_all(partial(self._damaged, manifest))
            if not any(wrong):
                reader = self.store.reader(manifest)
                load_sharded(state, storage_reader=reader, process_group=self.group, no_dist=not self.distributed)
                return manifest, [f"{note}: skipped" for number, note in sorted(notes.items()) if number > candidate]
            names = ", ".join(name for files in wrong for name in files)
            notes[candidate] = f"checkpoint of step {candidate} is damaged (checksum of {names})"
        if notes:
            raise UserError("; ".join(notes.values()), where=self.store.where, fix=RESTORE)
        return None

    def _damaged(self, manifest: Manifest) -> list[str]:
        """The files whose content changed since they were written, of this rank's share of them."""
        mine = manifest.files[self.rank :: self.world]
        return [file.name for file in mine if self.store.digest(manifest.step, file) != file.sha256]


class Writer(FileSystemWriter):
    """Names a full disk where it is met. Torch fails of it later, by a RuntimeError whose cause is lost on its way to
    the other ranks."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            if disk_full(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path)) from error
            raise


def portable(error: BaseException | None) -> BaseException | None:
    """An error that can be pickled to another rank."""
    if error is None or isinstance(error, (OSError, UserError)):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def other_steps(steps: Collection[int]) -> str:
    """What to do where the wanted step has no checkpoint."""
    if not steps:
        return "there is no checkpoint: leave out --resume to begin at step 0, or give the --folder of the run"
    return f"--resume with one of {', '.join(map(str, sorted(steps)))}"


def cached_planner(owner: str, distributed: bool) -> DefaultSavePlanner:
    """Which rank writes what does not change from save to save: from the second on, ranks send nothing to plan, and the
    first rank need not merge it."""
    planner = DefaultSavePlanner(enable_plan_caching=distributed)
    planner._cached_plans_key = owner  # torch's own key is the class, which several checkpointers share
    return planner
