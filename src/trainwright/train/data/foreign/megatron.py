"""Megatron-LM's indexed data sets: PREFIX.bin holds the tokens, PREFIX.idx lengths of sequences and documents."""

from __future__ import annotations

import struct
from pathlib import Path

import torch

from trainwright.errors import UserError
from trainwright.train.data.foreign.rows import ForeignFiles, ForeignShard, signature_of, starts_of
from trainwright.train.data.format import MANIFEST

NAME = "Megatron-LM"
MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, type, sequences, document boundaries
TYPES = {4: ("uint32", torch.int32), 8: ("uint16", torch.int16)}  # int32 and uint16; the signs do not matter


def recognises(path: Path) -> bool:
    """A prefix with one of its two files, or a folder that holds such prefixes."""
    data, index = _files(path)
    if path.is_dir():
        return _is_index(index) or bool(_prefixes(path))
    return index.is_file() or data.is_file()


def _is_index(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as handle:
        return handle.read(len(MAGIC)) == MAGIC


def _prefixes(folder: Path) -> list[Path]:
    """The data sets of a folder. Our own shards have the same suffixes."""
    indices = [file for file in sorted(folder.glob("*.idx")) if file.with_suffix(".bin").is_file()]
    return [file.with_suffix("") for file in indices if not file.name.startswith("shard-") or _is_index(file)]


def _files(path: Path) -> tuple[Path, Path]:
    stem = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    return stem.with_name(stem.name + ".bin"), stem.with_name(stem.name + ".idx")


def _require_index(path: Path, data: Path, index: Path) -> None:
    """Raise where what is named is not a pair of files with Megatron's index."""
    if _is_index(index):
        return
    if path.is_dir():
        prefixes = _prefixes(path)
        what = f"the folder holds {len(prefixes)} of Megatron's data sets, which are named by their prefix"
        raise UserError(what, where=str(path), fix=" ".join(["--data", *map(str, prefixes[:4])]))
    if (data.parent / MANIFEST).is_file():
        fix = f"--data {data.parent}"
        raise UserError("this is one shard of a prepared folder", where=str(path), fix=fix)
    if not index.is_file():
        raise UserError(f"the index of {data.name} is missing", where=str(index), fix="copy it beside the .bin file")
    raise UserError("this is not Megatron's index: its first bytes are others", where=str(index), fix="copy it again")


def read(path: Path, vocab: int | None) -> ForeignFiles:
    from trainwright.train.data.source import map_file

    data, index = _files(path)
    _require_index(path, data, index)
    content = map_file(index)
    try:
        _, version, code, sequences, boundaries = HEADER.unpack_from(content)
        dtype, kind = TYPES[code]
        lengths = torch.frombuffer(content, dtype=torch.int32, count=sequences, offset=HEADER.size)
        offset = HEADER.size + 12 * sequences  # behind the lengths and the byte positions of all sequences
        documents = torch.frombuffer(content, dtype=torch.int64, count=boundaries, offset=offset)
    except (struct.error, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(f"the index is cut short ({error})", where=str(index), fix="copy it again") from error
    except KeyError:
        raise UserError(f"tokens of type {code}", where=str(index), fix="int32 or uint16 tokens") from None
    if version != 1:
        raise UserError(f"version {version} of Megatron's index, only 1 is known", where=str(index))
    if (lengths < 0).any() or (documents.diff() < 0).any() or ((documents < 0) | (documents > sequences)).any():
        what = "the index has the right size, but is damaged: its documents are not in order"
        raise UserError(what, where=str(index), fix="copy it again")
    ends = starts_of(lengths)
    if not data.is_file():
        raise UserError("the tokens of this index are missing", where=str(data), fix="copy the file beside the index")
    size = data.stat().st_size
    if not size:
        raise UserError("no tokens here", where=str(data), fix="copy the files again, or other data")
    if size != ends[-1] * kind.itemsize:
        due = ends[-1] * kind.itemsize
        raise UserError(f"{size:,} bytes, the index says {due:,}", where=str(data), fix="copy the files again")
    # Boundaries count sequences: a document is one or several of them.
    every = torch.frombuffer(ends.obj, dtype=torch.int64)[documents]
    starts = starts_of(every.diff())
    tokens = torch.frombuffer(map_file(data), dtype=kind)
    shard = ForeignShard(data.stem, tokens, starts, signature_of(str(size), memoryview(content)))
    return ForeignFiles(path, dtype, [shard], vocab)
