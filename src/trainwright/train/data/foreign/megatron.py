"""Megatron-LM's indexed data sets: PREFIX.bin holds the tokens, PREFIX.idx lengths of sequences and documents."""

from __future__ import annotations

import struct
from pathlib import Path

import torch

from trainwright.errors import UserError
from trainwright.train.data.foreign.rows import ForeignFiles, ForeignShard, signature_of, starts_of

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, type, sequences, document boundaries
TYPES = {4: ("uint32", torch.int32), 8: ("uint16", torch.int16)}  # int32 and uint16; the signs do not matter


def recognises(path: Path) -> bool:
    index = _files(path)[1]
    if not index.is_file():
        return False
    with index.open("rb") as handle:
        return handle.read(len(MAGIC)) == MAGIC


def _files(path: Path) -> tuple[Path, Path]:
    stem = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    return stem.with_name(stem.name + ".bin"), stem.with_name(stem.name + ".idx")


def read(path: Path, vocab: int | None) -> ForeignFiles:
    from trainwright.train.data.source import map_file

    data, index = _files(path)
    content = map_file(index)
    try:
        _, version, code, sequences, boundaries = HEADER.unpack_from(content)
        dtype, kind = TYPES[code]
        lengths = torch.frombuffer(content, dtype=torch.int32, count=sequences, offset=HEADER.size)
        offset = HEADER.size + 12 * sequences  # behind the lengths and the byte positions of all sequences
        documents = torch.frombuffer(content, dtype=torch.int64, count=boundaries, offset=offset)
    except (struct.error, ValueError) as error:
        raise UserError(f"the index is cut short ({error})", where=str(index), fix="copy it again") from error
    except KeyError:
        raise UserError(f"tokens of type {code}", where=str(index), fix="int32 or uint16 tokens") from None
    if version != 1:
        raise UserError(f"version {version} of Megatron's index, only 1 is known", where=str(index))
    ends = starts_of(lengths)
    size = data.stat().st_size if data.is_file() else 0
    if size != ends[-1] * kind.itemsize:
        due = ends[-1] * kind.itemsize
        raise UserError(f"{size:,} bytes, the index says {due:,}", where=str(data), fix="copy the files again")
    # Boundaries count sequences: a document is one or several of them.
    every = torch.frombuffer(ends.obj, dtype=torch.int64)[documents]
    starts = starts_of(every.diff())
    tokens = torch.frombuffer(map_file(data), dtype=kind)
    shard = ForeignShard(data.stem, tokens, starts, signature_of(str(size), memoryview(content)))
    return ForeignFiles(path, dtype, [shard], vocab)
