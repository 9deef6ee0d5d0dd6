"""Saving beside training and loading under any plan: the one object the loop talks to about checkpoints."""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainwright.errors import UserError
from trainwright.train.checkpoint import faults
from trainwright.train.checkpoint.manifest import File, Manifest, describe_file, require_same_model
from trainwright.train.checkpoint.places import Place
from trainwright.train.checkpoint.staging import Stager, state_bytes

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
GROUP_TIMEOUT = timedelta(hours=1)  # an upload of a large part may take long; a dead peer is noticed at once


@dataclass(frozen=True, slots=True)
class Keep:
    """Which checkpoints stay: the newest `last`, and every step that `every` divides (0: none of those)."""

    last: int = 3
    every: int = 0


class Checkpointer:
    """Asynchronous saves, one at a time; errors of a save are raised by the next call."""

    def __init__(self, place: Place, keep: Keep, device: torch.device, model: Mapping[str, Any]) -> None:
        self.place, self.keep, self.model = place, keep, dict(model)
        self.stager = Stager(device)
        self.distributed = dist.is_initialized()
        self.rank = dist.get_rank() if self.distributed else 0
        self.world = dist.get_world_size() if self.distributed else 1
        # A group of its own: collectives of a save must not meet those of training. Gloo, because files are on the CPU.
        self.group = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT) if self.distributed else None
        if not self.distributed:
            warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        cores, neighbours = len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        # Threads (and files) of a rank's part; more than a few do not write faster, and the loop wants its cores.
        self.writers = max(1, min(4, cores // (4 * neighbours)))
        self.saved: int | None = None  # the newest step this process made visible
        self.seconds = 0.0  # how long the last save took, beside training
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
        """Wait for a save under way, and raise what went wrong in it."""
        self.settle()
        self.raise_errors()

    def settle(self) -> None:
        """Wait for a save under way, whatever comes of it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Before the process ends. Alone, a save that was begun can end, also after an error; among ranks, one that was
        lost may hold it up. And with a thread inside of torch, Python would end by abort, not with its status."""
        if self.world == 1:
            self.settle()
        self.stager.settle()

    def raise_errors(self) -> None:
        """Raise the error of a finished save, without waiting for one under way."""
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
            full = disk_full(error)
            self._error = self._no_space(state_bytes(staged)) if full else error
        self.seconds = time.perf_counter() - began

    def _write(self, step: int, staged: dict[str, Any], trainer: dict[str, Any]) -> None:
        self._on_first(lambda: self.place.clean(step))
        folder = self.place.writing(step)
        folder.mkdir(parents=True, exist_ok=True)
        faults.point("mid-save")
        writer = FileSystemWriter(folder, thread_count=self.writers)
        save_sharded(staged, storage_writer=writer, process_group=self.group, no_dist=not self.distributed)
        faults.point("written")
        files = self._collect(step, folder)
        self._on_first(lambda: self._publish(step, trainer, files))

    def _collect(self, step: int, folder: Path) -> tuple[File, ...]:
        """Every rank's files with their checksums, once they are where they belong."""

        def own() -> list[File]:
            mine = sorted(p for p in folder.iterdir() if p.name.startswith(f"__{self.rank}_"))
            if self.rank == 0:
                mine.append(folder / ".metadata")
            with ThreadPoolExecutor(self.writers) as pool:
                described = list(pool.map(describe_file, mine))
            self.place.part(step, [f.name for f in described])
            return described

        return tuple(f for files in self._together(own) for f in files)

    def _publish(self, step: int, trainer: dict[str, Any], files: tuple[File, ...]) -> None:
        self.place.publish(step, Manifest(step, self.model, trainer, files))
        whole = self.place.whole()
        for old in whole[max(1, self.keep.last) :]:
            if not self.keep.every or old % self.keep.every:
                self.place.remove(old)

    def _on_first(self, act: Callable[[], None]) -> None:
        """Rank 0 acts, and every rank waits for it and shares its error."""
        self._from_first(act)

    def _from_first(self, ask: Callable[[], Any]) -> Any:
        """What rank 0 found, on every rank."""
        return self._together(ask if self.rank == 0 else lambda: None)[0]

    def _together(self, act: Callable[[], Any]) -> list[Any]:
        """What `act` gives on every rank; an error of one is raised on all, so that none waits for a rank that left."""
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

    def make_ready(self, state: dict[str, Any]) -> None:
        """Before the first step: is there room on the disk for one checkpoint? Room in memory is taken meanwhile."""
        needed, free = state_bytes(state), self.place.free()
        if free is not None and free < needed:
            raise self._no_space(needed)
        self.stager.reserve(state)

    def _no_space(self, needed: int) -> UserError:
        free = self.place.free()
        room = "" if free is None else f", {free / 1e9:,.3f} GB are free"
        return UserError(
            f"no space left for a checkpoint: it needs {needed / 1e9:,.3f} GB{room}",
            where=self.place.where,
            fix="free the disk, keep fewer (--keep-last), or use --checkpoint-to; older ones are whole",
        )

    def load(self, state: dict[str, Any], step: int | None = None) -> tuple[Manifest, list[str]] | None:
        """Fill `state` from the newest whole checkpoint (or from `step`); None where there is none.

        Also gives a note for each checkpoint that had to be passed over because its content is damaged."""
        notes: list[str] = []
        steps = self._from_first(self.place.whole)
        if step is not None:
            if step not in steps:
                raise UserError(
                    f"no whole checkpoint of step {step}", where=self.place.where, fix=f"one of {sorted(steps)}"
                )
            steps = [step]
        for candidate in steps:
            manifest = self._from_first(partial(self.place.manifest, candidate))
            require_same_model(manifest, self.model, f"{self.place.where}, step {candidate}")
            wrong = self._together(partial(self._damaged, manifest))
            if not any(wrong):
                reader = self.place.reader(manifest)
                load_sharded(state, storage_reader=reader, process_group=self.group, no_dist=not self.distributed)
                return manifest, notes
            notes.append(f"checkpoint of step {candidate} is damaged ({', '.join(n for w in wrong for n in w)})")
        if notes:
            raise UserError("; ".join(notes), where=self.place.where, fix="no older whole checkpoint is left")
        return None

    def _damaged(self, manifest: Manifest) -> list[str]:
        """The files whose content changed since they were written, of this rank's share of them."""
        mine = manifest.files[self.rank :: self.world]
        return [file.name for file in mine if self.place.digest(manifest.step, file) != file.sha256]


def portable(error: BaseException | None) -> BaseException | None:
    """An error that surely survives the journey to another rank."""
    if error is None or isinstance(error, (OSError, UserError)):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def disk_full(error: BaseException) -> bool:
    """Is a full disk behind this error, on whichever rank, however deep?"""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    failures = getattr(error, "failures", None) or {}
    inner = [f[0] for f in failures.values()] + [error.__cause__, error.__context__]
    return any(disk_full(e) for e in inner if e is not None)
