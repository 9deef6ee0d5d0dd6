"""Hugging Face's arrow folders, as `Dataset.save_to_disk` writes them: a row's column `input_ids` (or `tokens`) is a
document. Read through pyarrow, memory-mapped."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.foreign.rows import ForeignFiles, ForeignShard, RowTokens, signature_of, starts_of

NAME = "Hugging Face arrow"
T = TypeVar("T")
COLUMNS = ("input_ids", "tokens")
SPLITS = "dataset_dict.json"
TYPES = {"int16": torch.int16, "uint16": torch.uint16, "int32": torch.int32, "uint32": torch.uint32,
         "int64": torch.int64, "uint64": torch.uint64}  # fmt: skip


def recognises(path: Path) -> bool:
    return (path / SPLITS).is_file() or next(path.glob("*.arrow"), None) is not None


def read(path: Path, vocab: int | None) -> ForeignFiles:
    if (path / SPLITS).is_file():
        splits = _described(path / SPLITS, lambda known: [str(split) for split in known["splits"]])
        fix = f"--data {path / splits[0]}" if splits else "a folder of `Dataset.save_to_disk` with a split"
        raise UserError(f"the folder holds the splits {', '.join(splits) or '(none)'}", where=str(path), fix=fix)
    return ForeignFiles(path, "uint32", [_shard(file) for file in _files(path)], vocab)


def _files(path: Path) -> list[Path]:
    """In the order of the data set, which state.json keeps."""
    state = path / "state.json"
    if not state.is_file():
        return sorted(path.glob("*.arrow"))
    return _described(state, lambda known: [path / file["filename"] for file in known["_data_files"]])


def _described(file: Path, names: Callable[[Any], list[T]]) -> list[T]:
    """What a JSON file of the folder names."""
    try:
        return names(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"not as `Dataset.save_to_disk` writes it ({error!r})"
        raise UserError(what, where=str(file), fix="copy it again") from error


def _shard(file: Path) -> ForeignShard:
    columns = _columns(file)
    batches = [_batch(column, file) for column in columns]
    ends = starts_of(torch.tensor([len(values) for values, _ in batches], dtype=torch.int64))
    starts = starts_of(torch.cat([lengths for _, lengths in batches]) if batches else torch.zeros(0))

    def batch(number: int) -> Tensor:
        return batches[number][0] if columns else torch.zeros(0)  # the columns own the memory of the batches

    tokens = RowTokens(file, ends, starts, batch)
    return ForeignShard(file.name, tokens, starts, signature_of(file.name, str(file.stat().st_size), starts))


def _columns(file: Path) -> list[Any]:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError("arrow files need the `pyarrow` package", where=str(file), fix="pip install pyarrow") from error
    try:
        source = pa.memory_map(str(file))
        try:
            table = pa.ipc.open_stream(source).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"not an arrow file: {error}", where=str(file), fix="copy it again") from error
    name = next((name for name in COLUMNS if name in table.column_names), None)
    if name is None:
        what = f"the columns are {', '.join(table.column_names)}: none holds tokens"
        fix = f"a column {COLUMNS[0]!r} of token ids; text is tokenized by `trainwright data prepare`"
        raise UserError(what, where=str(file), fix=fix)
    return list(table.column(name).chunks)


def _batch(column: Any, file: Path) -> tuple[Tensor, Tensor]:
    """The tokens of one record batch, without a copy, and the length of each row."""
    values = column.flatten() if "list" in str(column.type) else column
    kind = TYPES.get(str(values.type))
    if kind is None or values is column or column.null_count or values.null_count:
        what = f"rows of {column.type} with {column.null_count} empty ones: token ids are lists of whole numbers"
        raise UserError(what, where=str(file))
    lengths = column.value_lengths().to_pylist()
    if not len(values):
        return torch.zeros(0, dtype=kind), torch.tensor(lengths, dtype=torch.int64)
    buffer = values.buffers()[1]
    memory = (ctypes.c_char * buffer.size).from_address(buffer.address)  # torch wants memory it may write to
    tokens = torch.frombuffer(memory, dtype=kind, count=len(values), offset=values.offset * kind.itemsize)
    return tokens, torch.tensor(lengths, dtype=torch.int64)
