"""Token shards in S3, read in blocks on first touch and kept on a local disk (NVMe), shared by the node's ranks."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data import s3
from trainwright.train.data.format import (
    MANIFEST,
    TOKENIZER,
    TOKENIZER_SETTINGS,
    WIDTH,
    Shard,
    files_of,
    parse_manifest,
    same_tokenizer,
    write_durably,
)
from trainwright.train.data.source import DTYPES, map_file

BLOCK = 4 << 20  # bytes fetched at a time: long enough for S3's throughput, short enough to start at once


class Bucket:
    """The files of a prepared folder in S3. Only what is read is fetched, and it is fetched once per node."""

    def __init__(self, uri: str, cache: Path) -> None:
        self.where = uri
        self.remote = s3.Bucket(uri)
        try:
            text = self.remote.read(MANIFEST).decode()
        except FileNotFoundError as error:
            raise UserError(
                "no manifest.json there", where=uri, fix="upload a folder made by `trainwright data prepare`"
            ) from error
        self.manifest = parse_manifest(text, f"{uri}/{MANIFEST}")
        # The manifest holds checksums, so another data set at the same address gets another cache folder.
        self.folder = cache / hashlib.sha256(text.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._blocks: dict[str, Blocks] = {}
        self._check_sizes()

    def tokens(self, shard: Shard) -> Tensor:
        return torch.frombuffer(self._blocked(shard).data, dtype=DTYPES[self.manifest.dtype])

    def index(self, shard: Shard) -> memoryview:
        path = self.folder / shard.index_file
        if not path.exists():
            content = self.remote.read(shard.index_file)
            if hashlib.sha256(content).hexdigest() != shard.index_sha256:
                raise UserError("the index is not what the manifest says", where=f"{self.where}/{shard.index_file}")
            write_durably(path, content)
        return memoryview(map_file(path)).cast("Q")

    def tokenizer(self) -> bytes | None:
        try:
            return same_tokenizer(self.manifest, self.remote.read(TOKENIZER))
        except FileNotFoundError:
            return None

    def tokenizer_settings(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for name in TOKENIZER_SETTINGS if self.manifest.holds else ():
            with contextlib.suppress(FileNotFoundError):
                files[name] = self.remote.read(name)
        return files

    def fetch(self, shard: Shard, start: int, count: int) -> None:
        width = WIDTH[self.manifest.dtype]
        self._blocked(shard).need(start * width, (start + count) * width)

    def _blocked(self, shard: Shard) -> Blocks:
        if shard.name not in self._blocks:
            read = range_reader(self.remote, shard.data_file)
            path = self.folder / shard.data_file
            self._blocks[shard.name] = Blocks(path, self.manifest.data_bytes(shard), read)
        return self._blocks[shard.name]

    def _check_sizes(self) -> None:
        sizes = dict(self.remote.sizes("shard-"))
        for name, due in files_of(self.manifest):
            have = sizes.get(name)
            if have != due:
                raise UserError(
                    f"shard is {'missing' if have is None else f'{have:,} bytes'}, the manifest says {due:,} bytes",
                    where=f"{self.where}/{name}",
                    fix="upload the file again",
                )


class Blocks:
    """A sparse local copy of one object, filled block by block; a map beside it marks the blocks that are present."""

    def __init__(self, path: Path, size: int, read: Callable[[int, int], bytes]) -> None:
        self.path, self.read, self.size = path, read, size
        count = -(-size // BLOCK)
        self.file = sized(path, size)
        self.data = mmap.mmap(self.file, size)
        self.marks = sized(path.with_suffix(".map"), count)
        self.have = mmap.mmap(self.marks, count)
        self._lock = threading.Lock()

    def need(self, start: int, end: int) -> None:
        """Fetch what is missing of bytes start..end."""
        for block in range(start // BLOCK, (end - 1) // BLOCK + 1):
            if not self.have[block]:
                with self._lock:
                    if not self.have[block]:
                        self._fetch(block)

    def _fetch(self, block: int) -> None:
        begin, end = block * BLOCK, min((block + 1) * BLOCK, self.size)
        content = self.read(begin, end)
        if len(content) != end - begin:
            raise UserError(f"S3 gave {len(content):,} bytes for a range of {end - begin:,}", fix="run again")
        # Written as a file, because a full disk under a memory map kills the process. A block is marked once its bytes
        # are on the disk, so that the mark holds after a power cut. Two ranks may write the same bytes.
        try:
            os.pwrite(self.file, content, begin)
            os.fdatasync(self.file)
            os.pwrite(self.marks, b"\1", block)
        except OSError as error:
            raise UserError(
                f"cannot write a cache block of {end - begin:,} bytes: {error.strerror}",
                where=str(self.path),
                fix="free the disk, or another --cache folder",
            ) from error


def sized(path: Path, size: int) -> int:
    """The descriptor of a file of `size` bytes, sparse where nothing was written yet."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.fstat(descriptor).st_size != size:
        os.ftruncate(descriptor, size)
    return descriptor


def range_reader(remote: s3.Bucket, name: str) -> Callable[[int, int], bytes]:
    """Ranged reads of one object: by s3torchconnector's parallel client where it is installed, else our own."""
    try:
        from s3torchconnector import S3ClientConfig, S3MapDataset, S3ReaderConstructor
    except ImportError:
        return lambda start, end: remote.read(name, start, end)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    data = S3MapDataset.from_objects(
        [f"{remote.uri}/{name}"],
        region=remote.region,
        endpoint=endpoint,
        s3client_config=S3ClientConfig(force_path_style=bool(endpoint)),
        reader_constructor=S3ReaderConstructor.range_based(buffer_size=0),
    )

    def read(start: int, end: int) -> bytes:
        with data[0] as reader:
            reader.seek(start)
            return reader.read(end - start)

    return read
