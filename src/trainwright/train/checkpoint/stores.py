"""Where checkpoints are stored: a folder (local or shared), or S3. Both show a checkpoint only when it is complete."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Protocol

from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainwright.train.checkpoint import faults
from trainwright.train.checkpoint.manifest import NAME, File, Manifest, damage, parse, read_complete
from trainwright.train.checkpoint.remote import RemoteReader, remote_sha256
from trainwright.train.data import s3
from trainwright.train.data.format import file_sha256
from trainwright.train.disk import free_bytes

STEP = re.compile(r"^step-(\d{8,})$")
ASIDE = "manifest.aside.json"  # in S3, the manifest of a step that was set aside


def step_name(step: int) -> str:
    return f"step-{step:08d}"


class CheckpointStore(Protocol):
    """What the checkpointer needs of a store. Every rank calls `part`; only rank 0 calls the rest."""

    where: str

    def writing(self, step: int) -> Path:
        """The folder this rank writes its files of a step into."""

    def clean(self, step: int) -> None:
        """Prepare writing a step: remove leftovers of an interrupted save."""

    def sweep(self) -> None:
        """Remove leftovers of interrupted saves from the disk of this node."""

    def part(self, step: int, names: list[str]) -> None:
        """Store this rank's written files durably."""

    def publish(self, step: int, manifest: Manifest) -> None:
        """Make the step visible, atomically."""

    def complete_steps(self) -> list[int]:
        """The complete steps, newest first."""

    def damaged_steps(self) -> dict[int, str]:
        """Steps that were published once and are not complete any more, and why."""

    def reader(self, manifest: Manifest) -> FileSystemReader:
        """The reader torch loads a step with."""

    def digest(self, step: int, file: File) -> str:
        """The SHA-256 of a file as it is stored now."""

    def manifest(self, step: int) -> Manifest: ...

    def remove(self, step: int) -> None: ...

    def set_aside(self, step: int) -> None:
        """Keep a step, but do not resume from it."""

    def free(self) -> int | None:
        """Bytes that can still be written; None where there is no limit."""


class FolderStore:
    """A folder of checkpoints: written under a temporary name, flushed, then renamed."""

    def __init__(self, root: Path) -> None:
        self.root, self.where = root, str(root)

    def writing(self, step: int) -> Path:
        return self.root / f".{step_name(step)}.partial"

    def clean(self, step: int) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.sweep()
        self.writing(step).mkdir()

    def sweep(self) -> None:
        for leftover in self.root.glob(".step-*"):
            shutil.rmtree(leftover)

    def part(self, step: int, names: list[str]) -> None:
        for name in names:
            sync(self.writing(step) / name)

    def publish(self, step: int, manifest: Manifest) -> None:
        beside, final = self.writing(step), self.root / step_name(step)
        with (beside / NAME).open("wb") as handle:
            handle.write(manifest.to_json())
            handle.flush()
            os.fsync(handle.fileno())
        sync(beside)
        faults.point("before-rename")
        if final.exists():
            # The same step of an abandoned branch. Renamed first, so that a half-removed folder never has a valid name.
            os.rename(final, self.root / f".{step_name(step)}.replaced")
        os.rename(beside, final)
        faults.point("after-rename")
        sync(self.root)
        shutil.rmtree(self.root / f".{step_name(step)}.replaced", ignore_errors=True)

    def complete_steps(self) -> list[int]:
        if not self.root.is_dir():
            return []
        steps = [int(m[1]) for p in self.root.iterdir() if (m := STEP.match(p.name)) and read_complete(p)]
        return sorted(steps, reverse=True)

    def damaged_steps(self) -> dict[int, str]:
        # A step gets its final name by a rename, so anything under that name was complete once.
        folders = [(int(m[1]), p) for p in self.root.glob("step-*") if (m := STEP.match(p.name))]
        damaged = {step: self._damage(path) for step, path in folders}
        return {step: why for step, why in damaged.items() if why}

    def _damage(self, path: Path) -> str:
        sizes = {f.name: f.stat().st_size for f in path.iterdir()} if path.is_dir() else {}
        manifest = parse((path / NAME).read_bytes()) if NAME in sizes else None
        return damage(manifest, sizes)

    def reader(self, manifest: Manifest) -> FileSystemReader:
        return FileSystemReader(self.root / step_name(manifest.step))

    def digest(self, step: int, file: File) -> str:
        return file_sha256(self.root / step_name(step) / file.name)

    def manifest(self, step: int) -> Manifest:
        manifest = read_complete(self.root / step_name(step))
        if manifest is None:
            raise FileNotFoundError(f"{self.root / step_name(step)} is not complete")
        return manifest

    def remove(self, step: int) -> None:
        # Renamed first, so that a kill leaves a leftover and not half a checkpoint.
        aside = self.root / f".{step_name(step)}.removed"
        os.rename(self.root / step_name(step), aside)
        faults.point("mid-remove")
        shutil.rmtree(aside)

    def set_aside(self, step: int) -> None:
        aside = self.root / f"{step_name(step)}.aside"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(self.root / step_name(step), aside)

    def free(self) -> int | None:
        return free_bytes(self.root)


class S3Store:
    """Checkpoints in S3: written to a local disk, uploaded by each rank, and valid once the manifest object exists."""

    def __init__(self, uri: str, scratch: Path) -> None:
        self.where = uri
        self.remote = s3.Bucket(uri)
        self.scratch = scratch

    def writing(self, step: int) -> Path:
        return self.scratch / f".{step_name(step)}.partial"

    def clean(self, step: int) -> None:
        self.sweep()
        self.writing(step).mkdir(parents=True)
        held = list(self.remote.names("step-"))
        marked = {n.split("/")[0] for n in held if n.endswith((f"/{NAME}", f"/{ASIDE}"))} - {step_name(step)}
        # The manifest of a step that is saved again is deleted first: it must never describe a mix of files.
        for name in sorted(held, key=lambda n: not n.endswith(f"/{NAME}")):
            if STEP.match(name.split("/")[0]) and name.split("/")[0] not in marked:
                self.remote.delete(name)

    def sweep(self, but: Path | None = None) -> None:
        """Remove leftovers of saves from the local disk."""
        for leftover in self.scratch.glob(".step-*.partial"):
            if leftover != but:
                shutil.rmtree(leftover, ignore_errors=True)

    def part(self, step: int, names: list[str]) -> None:
        for name in names:
            path = self.writing(step) / name
            self.remote.upload(f"{step_name(step)}/{name}", path)
            path.unlink()
        self.sweep(but=self.writing(step))  # each node has its own disk

    def publish(self, step: int, manifest: Manifest) -> None:
        faults.point("before-rename")
        self.remote.write(f"{step_name(step)}/{NAME}", manifest.to_json())
        faults.point("after-rename")
        shutil.rmtree(self.writing(step), ignore_errors=True)

    def complete_steps(self) -> list[int]:
        return sorted((step for step, why in self._published().items() if not why), reverse=True)

    def damaged_steps(self) -> dict[int, str]:
        return {step: why for step, why in self._published().items() if why}

    def _published(self) -> dict[int, str]:
        """Every step with a manifest, and what is wrong with it. Objects without one are an interrupted upload."""
        objects: dict[str, dict[str, int]] = {}
        for name, size in self.remote.sizes("step-"):
            folder, _, file = name.partition("/")
            objects.setdefault(folder, {})[file] = size
        published = {int(m[1]): sizes for n, sizes in objects.items() if (m := STEP.match(n)) and NAME in sizes}
        return {step: damage(parse(self.remote.read(f"{step_name(step)}/{NAME}")), s) for step, s in published.items()}

    def reader(self, manifest: Manifest) -> FileSystemReader:
        return RemoteReader(self.remote, step_name(manifest.step), {f.name: f.size for f in manifest.files})

    def digest(self, step: int, file: File) -> str:
        return remote_sha256(self.remote, f"{step_name(step)}/{file.name}", file.size)

    def manifest(self, step: int) -> Manifest:
        manifest = parse(self.remote.read(f"{step_name(step)}/{NAME}"))
        if manifest is None:
            raise FileNotFoundError(f"{self.where}/{step_name(step)} is not complete")
        return manifest

    def remove(self, step: int) -> None:
        # The manifest is deleted first: without it the step is not a checkpoint.
        self.remote.delete(f"{step_name(step)}/{NAME}")
        faults.point("mid-remove")
        for name in list(self.remote.names(step_name(step) + "/")):
            self.remote.delete(name)

    def set_aside(self, step: int) -> None:
        self.remote.write(f"{step_name(step)}/{ASIDE}", self.remote.read(f"{step_name(step)}/{NAME}"))
        self.remote.delete(f"{step_name(step)}/{NAME}")

    def free(self) -> int | None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.scratch).free


def open_store(where: str, scratch: Path) -> CheckpointStore:
    """The store at s3://bucket/prefix, or at a folder."""
    return S3Store(where, scratch) if where.startswith("s3://") else FolderStore(Path(where))


def set_aside_newer_than(store: CheckpointStore, step: int) -> list[int]:
    """Set aside every step newer than `step`, and return them."""
    newer = [s for s in store.complete_steps() if s > step]
    for s in newer:
        store.set_aside(s)
    return newer


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
