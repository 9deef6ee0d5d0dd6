"""The safetensors file format, read and written in plain torch: an 8-byte length, a JSON header, then the bytes
of every tensor. Reading maps the file and writing goes tensor by tensor, so neither holds a second copy of a model."""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from trainwright.errors import UserError

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
BLOCK, MAX_BLOCKS = 4096, 512  # bytes of a tensor, and tensors of a file, that a fingerprint reads
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file; offsets count from the end of the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class TensorFile:
    """A safetensors file, mapped into memory; a tensor is read from disk when it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        with path.open("rb") as handle:
            length = struct.unpack("<Q", handle.read(8))[0] if size >= 8 else size
            if 8 + length > size:
                raise UserError(f"the header needs {length} bytes, the file has {size}", where=str(path))
            header = json.loads(handle.read(length))
            self.map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        header.pop("__metadata__", None)
        self.base = 8 + length
        self.entries = {name: self._entry(name, raw) for name, raw in header.items()}
        end = self.base + max((e.stop for e in self.entries.values()), default=0)
        if end > size:
            raise UserError(f"truncated: its tensors need {end} bytes, the file has {size}", where=str(path))

    def _entry(self, name: str, raw: dict) -> Entry:
        if raw["dtype"] not in DTYPES:
            raise UserError(
                f"tensor {name} has dtype {raw['dtype']}, not one of {', '.join(DTYPES)}", where=str(self.path)
            )
        return Entry(DTYPES[raw["dtype"]], tuple(raw["shape"]), *raw["data_offsets"])

    def read(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.start == entry.stop:
            return torch.empty(entry.shape, dtype=entry.dtype)
        count = prod(entry.shape)
        return torch.frombuffer(self.map, dtype=entry.dtype, count=count, offset=self.base + entry.start).view(
            entry.shape
        )


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's size, its header (names, types and shapes of all tensors) and a block from the middle of each
    tensor; of more than MAX_BLOCKS tensors, of that many or fewer at even distances. It takes a few hundred small reads
    whatever the size of the file, and training changes all of what it reads."""
    file, digest = TensorFile(path), hashlib.sha256(str(path.stat().st_size).encode())
    tensors = sorted(file.entries.values(), key=lambda entry: entry.start)
    with path.open("rb", buffering=0) as handle:
        digest.update(handle.read(file.base))
        for entry in tensors[:: -(-len(tensors) // MAX_BLOCKS) or 1]:
            begin = max(entry.start, (entry.start + entry.stop - BLOCK) // 2)
            handle.seek(file.base + begin)
            digest.update(handle.read(min(BLOCK, entry.stop - begin)))
    return digest.hexdigest()


def write(path: Path, sizes: dict[str, torch.Size], dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write tensors of known names and sizes, in the order of `sizes`, as they come."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in sizes.items():
        end = at + prod(size) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(size), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        for (name, tensor), wanted in zip(tensors, sizes, strict=True):
            assert name == wanted
            handle.write(tensor.to(dtype).contiguous().flatten().view(torch.uint8).numpy().data)
