"""Where checkpoints live: a folder (local or shared), or S3. Both show a checkpoint only when it is whole."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Protocol

from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainwright.train.checkpoint import faults
from trainwright.train.checkpoint.manifest import NAME, File, Manifest, parse, read_whole
from trainwright.train.checkpoint.remote import RemoteReader, remote_sha256
from trainwright.train.data import s3
from trainwright.train.data.format import file_sha256

STEP = re.compile(r"^step-(\d{8,})$")
ASIDE = "manifest.aside.json"  # in S3, the manifest of a step that was set aside


def step_name(step: int) -> str:
    return f"step-{step:08d}"


class Place(Protocol):
    """What the checkpointer asks of a place. `part` is one rank's, the rest is rank 0's to call."""

    where: str

    def writing(self, step: int) -> Path:
        """The folder this rank writes its files of a step into."""

    def clean(self, step: int) -> None:
        """Make room for writing a step: leftovers of a save that was cut off are removed."""

    def part(self, step: int, names: list[str]) -> None:
        """Put this rank's written files where they belong, durably."""

    def publish(self, step: int, manifest: Manifest) -> None:
        """Make the step visible, in one instant."""

    def whole(self) -> list[int]:
        """The steps that are whole, newest first."""

    def reader(self, manifest: Manifest) -> FileSystemReader:
        """What torch loads a step with."""

    def digest(self, step: int, file: File) -> str:
        """The SHA-256 of a file as it lies there now."""

    def manifest(self, step: int) -> Manifest: ...

    def remove(self, step: int) -> None: ...

    def set_aside(self, step: int) -> None:
        """Keep a step, but not as one to go on from."""

    def free(self) -> int | None:
        """Bytes that can still be written; None where there is no end."""


class Folder:
    """A folder of checkpoints: written aside, flushed, then renamed."""

    def __init__(self, root: Path) -> None:
        self.root, self.where = root, str(root)

    def writing(self, step: int) -> Path:
        return self.root / f".{step_name(step)}.partial"

    def clean(self, step: int) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        for leftover in self.root.glob(".step-*"):
            shutil.rmtree(leftover)
        self.writing(step).mkdir()

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
            # The same step of an abandoned past. Out of sight first: never is a half-removed folder under a whole name.
            os.rename(final, self.root / f".{step_name(step)}.replaced")
        os.rename(beside, final)
        faults.point("after-rename")
        sync(self.root)
        shutil.rmtree(self.root / f".{step_name(step)}.replaced", ignore_errors=True)

    def whole(self) -> list[int]:
        if not self.root.is_dir():
            return []
        steps = [int(m[1]) for p in self.root.iterdir() if (m := STEP.match(p.name)) and read_whole(p)]
        return sorted(steps, reverse=True)

    def reader(self, manifest: Manifest) -> FileSystemReader:
        return FileSystemReader(self.root / step_name(manifest.step))

    def digest(self, step: int, file: File) -> str:
        return file_sha256(self.root / step_name(step) / file.name)

    def manifest(self, step: int) -> Manifest:
        found = read_whole(self.root / step_name(step))
        if found is None:
            raise FileNotFoundError(f"{self.root / step_name(step)} is not whole")
        return found

    def remove(self, step: int) -> None:
        # Renamed first, so that a kill in the middle leaves a leftover and not a half checkpoint.
        aside = self.root / f".{step_name(step)}.removed"
        os.rename(self.root / step_name(step), aside)
        faults.point("mid-remove")
        shutil.rmtree(aside)

    def set_aside(self, step: int) -> None:
        aside = self.root / f"{step_name(step)}.aside"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(self.root / step_name(step), aside)

    def free(self) -> int | None:
        existing = next(p for p in (self.root, *self.root.parents) if p.exists())
        return shutil.disk_usage(existing).free


class Bucket:
    """Checkpoints in S3: written to a local disk, uploaded by each rank, and real once the manifest object exists."""

    def __init__(self, uri: str, scratch: Path) -> None:
        self.where = uri
        self.remote = s3.Bucket(uri)
        self.scratch = scratch

    def writing(self, step: int) -> Path:
        return self.scratch / f".{step_name(step)}.partial"

    def clean(self, step: int) -> None:
        self._sweep()
        self.writing(step).mkdir(parents=True)
        held = list(self.remote.names("step-"))
        marked = {n.split("/")[0] for n in held if n.endswith((f"/{NAME}", f"/{ASIDE}"))} - {step_name(step)}
        # The manifest of a step that is saved again goes first: it must never stand over a mix of old and new files.
        for name in sorted(held, key=lambda n: not n.endswith(f"/{NAME}")):
            if STEP.match(name.split("/")[0]) and name.split("/")[0] not in marked:
                self.remote.delete(name)

    def _sweep(self, but: Path | None = None) -> None:
        """Remove from the local disk what saves have left there."""
        for leftover in self.scratch.glob(".step-*.partial"):
            if leftover != but:
                shutil.rmtree(leftover, ignore_errors=True)

    def part(self, step: int, names: list[str]) -> None:
        for name in names:
            path = self.writing(step) / name
            self.remote.upload(f"{step_name(step)}/{name}", path)
            path.unlink()
        self._sweep(but=self.writing(step))  # each node has a disk of its own

    def publish(self, step: int, manifest: Manifest) -> None:
        faults.point("before-rename")
        self.remote.write(f"{step_name(step)}/{NAME}", manifest.to_json())
        faults.point("after-rename")
        shutil.rmtree(self.writing(step), ignore_errors=True)

    def whole(self) -> list[int]:
        sizes = dict(self.remote.sizes("step-"))
        named = [n.removesuffix(f"/{NAME}") for n in sizes if n.endswith(f"/{NAME}")]
        steps = sorted((int(m[1]) for n in named if (m := STEP.match(n))), reverse=True)
        return [s for s in steps if self._is_whole(s, sizes)]

    def _is_whole(self, step: int, sizes: dict[str, int]) -> bool:
        manifest = parse(self.remote.read(f"{step_name(step)}/{NAME}"))
        return manifest is not None and all(sizes.get(f"{step_name(step)}/{f.name}") == f.size for f in manifest.files)

    def reader(self, manifest: Manifest) -> FileSystemReader:
        return RemoteReader(self.remote, step_name(manifest.step), {f.name: f.size for f in manifest.files})

    def digest(self, step: int, file: File) -> str:
        return remote_sha256(self.remote, f"{step_name(step)}/{file.name}", file.size)

    def manifest(self, step: int) -> Manifest:
        found = parse(self.remote.read(f"{step_name(step)}/{NAME}"))
        if found is None:
            raise FileNotFoundError(f"{self.where}/{step_name(step)} is not whole")
        return found

    def remove(self, step: int) -> None:
        # The manifest goes first: from then on the step is not a checkpoint, whatever else is left of it.
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


def open_place(where: str, scratch: Path) -> Place:
    """The place a user named: s3://bucket/prefix, or a folder."""
    return Bucket(where, scratch) if where.startswith("s3://") else Folder(Path(where))


def set_aside_after(place: Place, step: int) -> list[int]:
    """Set aside every step newer than the one a run went back to; which they were."""
    newer = [s for s in place.whole() if s > step]
    for s in newer:
        place.set_aside(s)
    return newer


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
