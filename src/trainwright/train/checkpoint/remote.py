"""Loads a checkpoint from S3 with ranged reads: a rank fetches the tensors that its plan needs, and nothing is written
to disk."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainwright.train.data import s3

PARALLEL_REQUESTS = 8  # per rank: a single S3 stream is slower than the network


class Ranged(io.RawIOBase):
    """An object of S3 as a file to read from."""

    def __init__(self, remote: s3.Bucket, name: str, size: int) -> None:
        self.remote, self.name, self.size, self.at = remote, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        begin, self.at = self.at, max(self.at, min(self.at + len(buffer), self.size))
        filled = 0
        for piece in pieces(self.remote, self.name, begin, self.at):
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled


class RemoteReader(FileSystemReader):
    """Torch's own reader, over S3 objects instead of files."""

    def __init__(self, remote: s3.Bucket, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(folder)
        self.fs: Any = _Objects(remote, sizes)  # type: ignore[assignment]
        self.path = folder
        self.known: Any = None

    def read_metadata(self, *args: Any, **named: Any) -> Any:
        if self.known is None:
            self.known = super().read_metadata(*args, **named)
        return self.known

    def _slice_file(self, file: Any, sinfo: Any) -> io.BytesIO:
        # A tensor in one read: torch would read it in many small ones, each of them a request.
        file.seek(sinfo.offset)
        return io.BytesIO(file.read(sinfo.length))


class _Objects:
    """The part of a file system interface that the reader uses."""

    def __init__(self, remote: s3.Bucket, sizes: Mapping[str, int]) -> None:
        self.remote, self.sizes = remote, sizes

    def concat_path(self, folder: str, name: str) -> str:
        return f"{folder}/{name}"

    @contextmanager
    def create_stream(self, path: str, _mode: str) -> Iterator[io.BufferedReader]:
        yield io.BufferedReader(Ranged(self.remote, path, self.sizes[path.rpartition("/")[2]]), 1 << 20)


def pieces(remote: s3.Bucket, name: str, begin: int, end: int) -> Iterator[bytes]:
    """The bytes from `begin` to `end` in order, several requests at a time."""
    begins = range(begin, end, s3.PART)
    if len(begins) < 2:
        yield from (remote.read(name, at, end) for at in begins)
        return
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        for first in range(0, len(begins), PARALLEL_REQUESTS):  # limits how much of a large object is in memory
            yield from pool.map(
                lambda at: remote.read(name, at, min(at + s3.PART, end)), begins[first : first + PARALLEL_REQUESTS]
            )


def remote_sha256(remote: s3.Bucket, name: str, size: int) -> str:
    digest = hashlib.sha256()
    for piece in pieces(remote, name, 0, size):
        digest.update(piece)
    return digest.hexdigest()
