"""MosaicML's MDS folders: index.json names the shards; a shard begins with the byte position of each of its samples. A
sample's column `tokens` (or `input_ids`) is a document."""

from __future__ import annotations

import bz2
import fcntl
import gzip
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.foreign.rows import ForeignFiles, ForeignShard, RowTokens, signature_of, starts_of
from trainwright.train.data.format import write_durably

NAME = "MosaicML MDS"
COLUMNS = ("tokens", "input_ids")
TYPES = {"int16": torch.int16, "uint16": torch.uint16, "int32": torch.int32, "uint32": torch.uint32,
         "int64": torch.int64, "uint64": torch.uint64}  # fmt: skip
BYTES_TYPE = "int64"  # what LLM Foundry writes into columns of bytes


INDEX = "index.json"


def recognises(path: Path) -> bool:
    """By its index; where that is damaged or missing, by the names of its shards."""
    try:
        shards = json.loads((path / INDEX).read_bytes())["shards"]
        return bool(shards) and all(shard["format"] == "mds" for shard in shards)
    except (OSError, ValueError, KeyError, TypeError):
        return next(path.glob("shard.*.mds*"), None) is not None


def read(path: Path, vocab: int | None) -> ForeignFiles:
    try:
        shards = json.loads((path / INDEX).read_bytes())["shards"]
        named = [(_file(path, shard), shard) for shard in shards]
    except FileNotFoundError:
        raise UserError("the index of these shards is missing", where=str(path / INDEX), fix="copy it again") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"not an index of MDS ({error!r})", where=str(path / INDEX), fix="copy it again") from error
    return ForeignFiles(path, "uint32", [_shard(path, shard, file) for file, shard in named], vocab)


def _file(folder: Path, shard: dict[str, Any]) -> Path:
    """The shard's file; KeyError or TypeError where the index does not say what reading it needs."""
    wrong = [name for name in ("column_names", "column_encodings", "column_sizes") if not isinstance(shard[name], list)]
    if wrong or not isinstance(shard["raw_data"]["bytes"], int):
        raise TypeError(wrong[0] if wrong else "bytes")
    return folder / shard["raw_data"]["basename"]


@dataclass(frozen=True)
class Column:
    """The column of tokens: where it lies in a sample, and its encoding."""

    number: int
    sizes: tuple[int | None, ...]  # of all columns, in bytes; None: each sample says it
    kind: torch.dtype
    shaped: bool  # values come after their shape

    def place(self, content: Any, begin: int, stop: int) -> tuple[int, int]:
        """(first byte, number of tokens) in the sample of these bytes; ValueError where it is damaged."""
        at, sizes = begin, []
        for size in self.sizes:
            sizes.append(size or struct.unpack_from("<I", content, at)[0])
            at += 0 if size else 4
        if at + sum(sizes) != stop:
            raise ValueError(f"the sample at byte {begin:,} does not end at byte {stop:,}")
        at += sum(sizes[: self.number])
        end = at + sizes[self.number]
        if self.shaped:
            at += 1 + _shape_bytes(content[at])
        if at > end:
            raise ValueError(f"the sample at byte {begin:,} is shorter than its shape")
        return at, (end - at) // self.kind.itemsize


def _shape_bytes(head: int) -> int:
    """A byte holds the number of dimensions and the width of each of their sizes."""
    return (head >> 2) * (1 << (head & 3))


def _shard(folder: Path, shard: dict[str, Any], file: Path) -> ForeignShard:
    from trainwright.train.data.source import map_file

    if not file.is_file():
        _unpack(folder, shard, file)
    if file.stat().st_size != shard["raw_data"]["bytes"]:
        due = shard["raw_data"]["bytes"]
        what = f"{file.stat().st_size:,} bytes, index.json says {due:,}"
        raise UserError(what, where=str(file), fix="copy it again")
    column = _column(shard, str(folder))
    try:
        content = map_file(file)
        places = list(_places(content, column))
    except (struct.error, ValueError, IndexError) as error:
        what = f"the shard has the right size, but is damaged: {error}"
        raise UserError(what, where=str(file), fix="copy it again") from error
    starts = starts_of(torch.tensor([count for _, count in places], dtype=torch.int64))

    def row(number: int) -> Tensor:
        begin, count = places[number]
        return torch.frombuffer(content, dtype=column.kind, count=count, offset=begin)

    tokens = RowTokens(file, starts, starts, row)
    return ForeignShard(file.name, tokens, starts, signature_of(json.dumps(shard), starts))


def _unpack(folder: Path, shard: dict[str, Any], file: Path) -> None:
    """Decompress a shard beside its compressed form, as `streaming` does."""
    packed = folder / (shard.get("zip_data") or {"basename": file.name})["basename"]
    if not packed.is_file():
        raise UserError("the shard is missing", where=str(packed), fix="copy it again")
    kind = str(shard["compression"]).partition(":")[0]
    if kind not in UNPACKERS:
        fix = f"{', '.join(UNPACKERS)}; or let `streaming` decompress the shards, with keep_zip=False"
        raise UserError(f"shards compressed with {kind} are not read", where=str(packed), fix=fix)
    with packed.open("rb") as handle:
        with suppress(OSError):  # a file system without locks: then several ranks write the same file
            fcntl.flock(handle, fcntl.LOCK_EX)
        if not file.is_file():
            _write(file, UNPACKERS[kind], packed, shard["raw_data"]["bytes"])


def _write(file: Path, unpack: Callable[[bytes], bytes], packed: Path, size: int) -> None:
    try:
        raw = unpack(packed.read_bytes())
        if len(raw) != size:
            raise ValueError(f"{len(raw):,} bytes, index.json says {size:,}")
        write_durably(file, raw)
    except PermissionError:
        what = "cannot decompress: no right to write here"
        raise UserError(what, where=str(file), fix="a copy in a folder of your own") from None
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"cannot decompress: {error}", where=str(packed), fix="copy it again") from None


def _unzstd(packed: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise UserError("MDS shards in zstd need the `zstandard` package", fix="pip install zstandard") from None
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(error) from None


UNPACKERS: dict[str, Callable[[bytes], bytes]] = {"zstd": _unzstd, "gz": gzip.decompress, "bz2": bz2.decompress}


def _places(content: Any, column: Column) -> Iterator[tuple[int, int]]:
    samples = struct.unpack_from("<I", content)[0]
    begins = struct.unpack_from(f"<{samples + 1}I", content, 4)
    if begins[-1] != len(content) or list(begins) != sorted(begins):
        raise ValueError("its table of samples does not cover it")
    return (column.place(content, begin, stop) for begin, stop in pairwise(begins))


def _column(shard: dict[str, Any], where: str) -> Column:
    names = shard["column_names"]
    name = next((name for name in COLUMNS if name in names), None)
    if name is None:
        fix = f"a column {COLUMNS[0]!r} of token ids; text is tokenized by `trainwright data prepare`"
        raise UserError(f"the columns are {', '.join(names)}: none holds tokens", where=where, fix=fix)
    number = names.index(name)
    encoding, *rest = shard["column_encodings"][number].split(":")
    kind = BYTES_TYPE if encoding == "bytes" else rest[0] if rest else ""
    if encoding not in ("bytes", "ndarray") or kind not in TYPES:
        raise UserError(f"column {name!r} is {shard['column_encodings'][number]}", where=where, fix="ndarray:int32")
    sizes = list(shard["column_sizes"])
    if len(rest) > 1 and not sizes[number]:
        sizes[number] = prod(map(int, rest[1].split(","))) * TYPES[kind].itemsize
    return Column(number, tuple(sizes), TYPES[kind], encoding == "ndarray" and len(rest) == 1)
