"""`data stage`: copies a dataset to node-local disks, read once per cluster and not once per node.

Each node reads its share of the chunks from the shared storage and sends it to the others. A file appears under its
name only when every byte has arrived; a run that was killed is continued by the same command. At the end each copy is
read back and compared with the digest of what was read from the source.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from trainwright.errors import UserError
from trainwright.train.data.format import file_sha256, write_durably
from trainwright.train.data.progress import Progress
from trainwright.train.data.s3 import Bucket

CHUNK = 8 << 20
JOURNAL = ".staged"  # one small file per staged file, so that a crash can damage the record of one at most


@dataclass(frozen=True, slots=True)
class Item:
    """One file of the source; `stamp` changes when its content does."""

    name: str
    size: int
    stamp: str


class Source(Protocol):
    """Where the data comes from."""

    def items(self) -> list[Item]: ...

    def read(self, name: str, start: int, end: int) -> bytes: ...


class FolderSource:
    """A folder on a shared file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def items(self) -> list[Item]:
        if not self.root.is_dir():
            raise UserError("no such folder", where=str(self.root), fix="check the path on this node")
        return sorted((self._item(path) for path in self._files(self.root, ())), key=lambda item: item.name)

    def _files(self, folder: Path, above: tuple[str, ...]) -> Iterator[Path]:
        """Folders behind links too (`rglob` leaves them out), but none inside itself."""
        real = os.path.realpath(folder)
        if real in above:
            raise UserError("a link leads back to a folder above it", where=str(folder), fix="remove the link")
        for path in folder.iterdir():
            if path.is_dir():
                yield from self._files(path, (*above, real))
            elif path.is_file():
                yield path
            elif path.is_symlink():
                raise UserError("a link that leads nowhere", where=str(path), fix="remove it, or bring its file back")

    def _item(self, path: Path) -> Item:
        facts = path.stat()
        return Item(str(path.relative_to(self.root)), facts.st_size, str(facts.st_mtime_ns))

    def read(self, name: str, start: int, end: int) -> bytes:
        with (self.root / name).open("rb") as handle:
            handle.seek(start)
            return handle.read(end - start)


class BucketSource:
    """Objects under s3://bucket/prefix. The listing's ETag changes with an object's content."""

    def __init__(self, uri: str) -> None:
        self.bucket = Bucket(uri)

    def items(self) -> list[Item]:
        listed = sorted(self.bucket.objects())
        return [Item(name, size, tag) for name, size, tag in listed if name and not name.endswith("/")]

    def read(self, name: str, start: int, end: int) -> bytes:
        return self.bucket.read(name, start, end) if end > start else b""


def open_source(where: str) -> Source:
    return BucketSource(where) if where.startswith("s3://") else FolderSource(Path(where))


class Nodes(Protocol):
    """The nodes that stage together: who this one is, and how one node's bytes reach all."""

    rank: int
    size: int

    def share(self, content: bytes | None, owner: int) -> bytes: ...

    def all(self, value: Any) -> list[Any]: ...


class OneNode:
    rank, size = 0, 1

    def share(self, content: bytes | None, owner: int) -> bytes:
        assert content is not None
        return content

    def all(self, value: Any) -> list[Any]:
        return [value]


class Cluster:
    """One process per node, over torch.distributed."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.dist, self.rank, self.size = dist, dist.get_rank(), dist.get_world_size()

    def share(self, content: bytes | None, owner: int) -> bytes:
        import torch

        length = torch.tensor([len(content) if content is not None else 0])
        self.dist.broadcast(length, owner)
        own = bytearray(content) if content is not None else bytearray(int(length))
        if not own:
            return b""
        self.dist.broadcast(torch.frombuffer(own, dtype=torch.uint8), owner)
        return bytes(own)

    def all(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values


@dataclass(frozen=True, slots=True)
class Staged:
    """What a run did, on this node."""

    files: int
    bytes: int
    copied: int  # bytes that were still missing
    read: int  # bytes this node read from the source


class Stage:
    """One staging of a source into a folder of this node."""

    def __init__(self, source: Source, target: Path, nodes: Nodes, workers: int = 4) -> None:
        self.source, self.target, self.nodes, self.workers = source, target, nodes, workers
        self.journal = target / JOURNAL
        self.read = 0
        self.stopped = False
        self.lock = threading.Lock()  # files are copied by several threads

    def run(self, quiet: bool = False) -> Staged:
        """Copy what is missing, then verify every file. Safe to run again after any interruption."""
        items = self.nodes.all(self.source.items() if self.nodes.rank == 0 else None)[0]
        if not items:
            raise UserError("nothing to stage: no file in the source", fix="check the folder's or the prefix's name")
        for item in items:
            parts = Path(item.name).parts
            if Path(item.name).is_absolute() or ".." in parts or parts[:1] == (JOURNAL,) or "\0" in item.name:
                raise UserError(f"{item.name!r} cannot be a file below the target", fix="rename it in the source")
        self.journal.mkdir(parents=True, exist_ok=True)
        have = [self._offset(item) for item in items]
        # A chunk is sent where any node lacks it; every node then takes part, as the others wait for its share.
        offsets = [min(column) for column in zip(*self.nodes.all(have), strict=True)]
        total = sum(item.size for item in items)
        progress = Progress(total, "B", "stage")
        progress.skip(sum(min(at, item.size) for at, item in zip(offsets, items, strict=True)))
        missing = [(item, at) for item, at in zip(items, offsets, strict=True) if at <= item.size]
        if self.nodes.size == 1:
            with ThreadPoolExecutor(self.workers) as pool:
                try:
                    for copied in [pool.submit(self._copy, item, at, progress) for item, at in missing]:
                        copied.result()
                except BaseException:  # a full disk or Ctrl-C: leaving the pool would first copy all that is queued
                    self.stopped = True
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        else:
            for item, at in missing:
                self._copy(item, at, progress)
        if not quiet:
            progress.close()
        self._verify(items)
        return Staged(len(items), total, sum(item.size - at for item, at in missing), self.read)

    def _offset(self, item: Item) -> int:
        """How far this node has the file: past its end where it is whole and recorded."""
        if self._record(item) is not None:
            return item.size + 1
        part = self._part(item)
        return part.stat().st_size // CHUNK * CHUNK if part.exists() else 0

    def _copy(self, item: Item, offset: int, progress: Progress) -> None:
        part = self._part(item)
        part.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        whole = self._record(item) is not None
        with open(self.target / item.name if whole else part, "r+b" if whole or part.exists() else "w+b") as out:
            for content in _blocks(out, offset):
                digest.update(content)
            for content in self._chunks(item, offset):
                if self.stopped:  # what has arrived stays for the next run
                    return
                digest.update(content)
                if not whole:
                    out.write(content)
                with self.lock:
                    progress.add(len(content), item.name)
            if not whole:
                out.truncate(item.size)
                out.flush()
                os.fsync(out.fileno())
        if not whole:
            path = self.target / item.name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(part, path)
            write_durably(self._note(item), json.dumps({**asdict(item), "sha256": digest.hexdigest()}).encode())

    def _chunks(self, item: Item, offset: int) -> Iterator[bytes]:
        """The file from `offset` on; the nodes read in turns, each one ahead of its turn."""
        starts = list(range(offset, item.size, CHUNK))
        own = [start for at, start in enumerate(starts) if at % self.nodes.size == self.nodes.rank]
        with ThreadPoolExecutor(1) as pool:
            ahead = {start: pool.submit(self._fetch, item, start) for start in own[:1]}
            for at, start in enumerate(starts):
                owner, content = at % self.nodes.size, None
                if owner == self.nodes.rank:
                    after = own[own.index(start) + 1 :][:1]
                    content = ahead.pop(start).result()
                    ahead |= {later: pool.submit(self._fetch, item, later) for later in after}
                yield self.nodes.share(content, owner)

    def _fetch(self, item: Item, start: int) -> bytes:
        end = min(item.size, start + CHUNK)
        content = self.source.read(item.name, start, end)
        if len(content) != end - start:
            raise UserError("the file became shorter while it was staged", where=item.name, fix="run the command again")
        with self.lock:
            self.read += len(content)
        return content

    def _verify(self, items: list[Item]) -> None:
        """Read every copy back. A damaged one is forgotten, so that the next run copies it anew."""
        damaged = []
        for item in items:
            record = self._record(item)
            if record is None or file_sha256(self.target / item.name) != record["sha256"]:
                self._note(item).unlink(missing_ok=True)
                damaged.append(item.name)
        everywhere = sorted({name for names in self.nodes.all(damaged) for name in names})
        if everywhere:
            raise UserError(
                f"{len(everywhere)} copies differ from what was read: {', '.join(everywhere[:3])}",
                where=str(self.target),
                fix="run the command again; if it stays so, the disk is at fault",
            )

    def _record(self, item: Item) -> dict[str, Any] | None:
        """The journal's entry of a file that is whole and unchanged in the source."""
        try:
            record: dict[str, Any] = json.loads(self._note(item).read_bytes())
            size = (self.target / item.name).stat().st_size
        except (OSError, ValueError):
            return None
        same = (record.get("size"), record.get("stamp")) == (item.size, item.stamp) and size == item.size
        return record if same else None

    def _note(self, item: Item) -> Path:
        return self.journal / f"{hashlib.sha256(os.fsencode(item.name)).hexdigest()[:32]}.json"

    def _part(self, item: Item) -> Path:
        """The unfinished copy; another size or stamp in the source makes it another file."""
        key = hashlib.sha256(os.fsencode(f"{item.name}/{item.size}/{item.stamp}")).hexdigest()[:32]
        return self.journal / f"{key}.part"


def _blocks(handle: Any, length: int) -> Iterator[bytes]:
    """The first `length` bytes, which an earlier run wrote; the file is left positioned after them."""
    handle.seek(0)
    while length > 0:
        content = handle.read(min(CHUNK, length))
        if not content:
            return
        length -= len(content)
        yield content
