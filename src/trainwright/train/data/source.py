"""A prepared folder as one long stream of tokens: any span of it and the document starts within, without a copy."""

from __future__ import annotations

import mmap
import os
import platform
from bisect import bisect_left, bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.builtin import PROTEINS, builtin_folder
from trainwright.train.data.foreign import open_foreign
from trainwright.train.data.format import (
    MANIFEST,
    TOKENIZER,
    TOKENIZER_SETTINGS,
    Manifest,
    Shard,
    beside,
    check_sizes,
    read_manifest,
    same_tokenizer,
)
from trainwright.train.disk import CACHE_FULL, removed_on_error

# Signed views: torch widens those several times faster, and `widen` corrects the sign.
DTYPES = {"uint16": torch.int16, "uint32": torch.int32}


NO_FOLDER = "no such data folder"


class Files(Protocol):
    """Where the files of a prepared folder come from: a local folder, or a bucket behind a cache."""

    where: str
    manifest: Manifest

    def tokens(self, shard: Shard) -> Tensor: ...

    def index(self, shard: Shard) -> memoryview: ...

    def tokenizer(self) -> bytes | None:
        """The tokenizer.json that made the tokens, where it is kept beside them."""

    def tokenizer_settings(self) -> dict[str, bytes]:
        """Further files of the tokenizer, by name, where they are kept: chats and pairs have its chat template."""

    def fetch(self, shard: Shard, start: int, count: int) -> None:
        """Make tokens start..start+count readable; a no-op for a local folder."""


class Folder:
    """The files of a local (or mounted) folder, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.path = path
        self.manifest = read_manifest(path)
        check_sizes(self.manifest, path)

    def tokens(self, shard: Shard) -> Tensor:
        return torch.frombuffer(map_file(self.path / shard.data_file), dtype=DTYPES[self.manifest.dtype])

    def index(self, shard: Shard) -> memoryview:
        return memoryview(map_file(self.path / shard.index_file)).cast("Q")

    def tokenizer(self) -> bytes | None:
        path = self.path / TOKENIZER
        return same_tokenizer(self.manifest, path.read_bytes()) if path.is_file() else None

    def tokenizer_settings(self) -> dict[str, bytes]:
        if not self.manifest.holds:
            return {}
        return {name: (self.path / name).read_bytes() for name in TOKENIZER_SETTINGS if (self.path / name).is_file()}

    def fetch(self, shard: Shard, start: int, count: int) -> None:
        return None


def map_file(path: Path) -> mmap.mmap:
    """The file in memory, read as it is touched. Private, because torch wants a buffer it may write to."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(descriptor)


class TokenSource:
    """Samples of `sequence` tokens (and the one after), cut from the concatenation of every shard."""

    def __init__(self, files: Files, sequence: int) -> None:
        self.files = files
        self.sequence = sequence
        self.manifest = files.manifest
        self.shards = [s for s in self.manifest.shards if s.tokens]
        self.starts = [0, *accumulate(s.tokens for s in self.shards)]
        self.samples = max(0, (self.starts[-1] - 1) // sequence)
        if not self.samples:
            raise UserError(
                f"the context is {sequence:,} tokens, the data holds {self.starts[-1]:,}",
                where=files.where,
                fix=f"--sequence {max(1, self.starts[-1] - 1)} or less, or more data",
            )
        self._open: dict[int, tuple[Tensor, memoryview]] = {}

    def tokens(self, sample: int) -> Tensor:
        """The tokens of a sample and the one after it, as stored; `widen` converts them to int64."""
        start = sample * self.sequence
        place = bisect_right(self.starts, start) - 1
        offset = start - self.starts[place]
        if offset + self.sequence + 1 <= self.shards[place].tokens:
            return self._span(place, offset, self.sequence + 1)
        return self._across(start, self.sequence + 1)

    def document_starts(self, sample: int) -> list[int]:
        """Where in the sample (1..sequence-1, or sequence for the token after it) a new document starts."""
        begin, end = sample * self.sequence + 1, (sample + 1) * self.sequence
        starts: list[int] = []
        place = bisect_right(self.starts, begin) - 1
        while place < len(self.shards) and self.starts[place] <= end:
            base = self.starts[place]
            index = self._shard(place)[1]
            first = bisect_left(index, begin - base)
            last = bisect_right(index, end - base)
            starts += [base + at - begin + 1 for at in index[first:last].tolist()]
            place += 1
        # A shard's index closes with its length, which is where the next shard's first document starts, unless the
        # document goes on there.
        inside = {self.starts[i] - begin + 1 for i, shard in enumerate(self.shards) if shard.continues}
        return sorted(set(starts) - inside)

    def _shard(self, place: int) -> tuple[Tensor, memoryview]:
        if place not in self._open:
            shard = self.shards[place]
            self._open[place] = (self.files.tokens(shard), self.files.index(shard))
        return self._open[place]

    def _span(self, place: int, offset: int, count: int) -> Tensor:
        self.files.fetch(self.shards[place], offset, count)
        return self._shard(place)[0][offset : offset + count]

    def _across(self, start: int, count: int) -> Tensor:
        parts = []
        while count:
            place = bisect_right(self.starts, start) - 1
            offset = start - self.starts[place]
            taken = min(count, self.shards[place].tokens - offset)
            parts.append(self._span(place, offset, taken))
            start, count = start + taken, count - taken
        return torch.cat(parts)


def stack_rows(rows: list[Tensor]) -> Tensor:
    """Stored rows as one tensor; those of 16 bits become whole numbers of 32 where they meet others."""
    if len({row.dtype for row in rows}) > 1:
        rows = [row.int().bitwise_and_(0xFFFF) if row.dtype == torch.int16 else row for row in rows]
    return torch.stack(rows)


def widen(stored: Tensor, vocab: int, out: Tensor) -> Tensor:
    """Stored tokens as int64, into `out`."""
    out.copy_(stored)
    return out.bitwise_and_(0xFFFF) if stored.dtype == torch.int16 and vocab > 1 << 15 else out


def outside(stored: Tensor, vocab: int) -> int | None:
    """A stored token that the vocabulary does not have, if there is one."""
    least, most = (int(bound) for bound in torch.aminmax(stored))
    if least < 0 and stored.dtype == torch.int16:  # stored as 32768 or more
        least, most = 0, int(stored.int().bitwise_and_(0xFFFF).amax())
    if least < 0:
        return least
    return most if most >= vocab else None


def cache_home() -> Path:
    """This machine's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"


def stdlib_folder() -> Path:
    """The built-in corpus as byte tokens, prepared on first use and cached."""
    from trainwright.train.data.prepare import prepare
    from trainwright.train.data.readers import STDLIB

    # The patch release too: its sources differ. The number counts changes of what belongs to the corpus.
    folder = cache_home() / f"stdlib-{platform.python_version()}-2"
    if not (folder / "manifest.json").exists():
        # Several ranks may do this at once: each prepares its own, and the first rename wins.
        own = beside(folder)
        with removed_on_error(own, where=folder, fix=CACHE_FULL):
            prepare([STDLIB], own, workers=1, quiet=True)
        try:
            os.rename(own, folder)
        except OSError:
            import shutil

            shutil.rmtree(own)
    return folder


def open_files(name: str, cache: Path | None = None, vocab: int | None = None) -> Files:
    """A prepared data set by name: a folder, `s3://bucket/prefix`, `builtin:stdlib`, or what another tool prepared;
    `vocab` is the model's, for data without a tokenizer."""
    if name.startswith("s3://"):
        return _open_bucket(name, cache or cache_home() / "s3", vocab)
    if name.startswith("builtin:"):
        if name == PROTEINS:
            return Folder(builtin_folder(name))
        if name != "builtin:stdlib":
            raise UserError(f"no such built-in corpus {name!r}", fix=f"use builtin:stdlib or {PROTEINS}")
        return Folder(stdlib_folder())
    foreign = None if (Path(name) / MANIFEST).exists() else open_foreign(name, vocab)
    if foreign is not None:
        return foreign
    if Path(name).is_file():
        fix = "`trainwright data prepare` turns text into one"
        raise UserError("this is a file, not a folder of token shards", where=name, fix=fix)
    if not Path(name).is_dir():
        raise UserError(NO_FOLDER, where=name, fix="prepare it with `trainwright data prepare`")
    return Folder(Path(name))


def _open_bucket(uri: str, cache: Path, vocab: int | None) -> Files:
    from trainwright.train.data import s3
    from trainwright.train.data.cache import Bucket
    from trainwright.train.data.foreign.remote import stage_foreign

    if s3.Bucket(uri).size(MANIFEST) is None:
        local = stage_foreign(uri, cache)
        foreign = open_foreign(str(local), vocab) if local is not None else None
        if foreign is not None:
            return foreign
    return Bucket(uri, cache)
