"""What the foreign formats have in common: rows of tokens somewhere in files, and a table of where each row begins."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.format import TOKENIZER, Manifest, Shard, TokenizerId

UNNAMED = "unnamed"  # the tokenizer of data that does not say which one made it
WIDEST = 1 << 31
WIDE = (torch.uint32, torch.int64, torch.uint64)


class RowTokens:
    """Rows one after another as one long stream: a slice reads the rows it touches, and no others. A row is a sample of
    the file, or a batch of them: `samples` says where each one starts."""

    def __init__(
        self, file: Path, starts: Sequence[int], samples: Sequence[int], read: Callable[[int], Tensor]
    ) -> None:
        self.file, self.samples, self.read = file, samples, read
        self.starts = starts  # of each row, and the end of the last

    def __getitem__(self, span: slice) -> Tensor:
        begin, end, parts = span.start, span.stop, []
        row = bisect_right(self.starts, begin) - 1
        while begin < end:
            first, stop = self.starts[row], min(end, self.starts[row + 1])
            if stop > begin:
                parts.append(self._narrow(self.read(row)[begin - first : stop - first], begin))
                begin = stop
            row += 1
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _narrow(self, stored: Tensor, begin: int) -> Tensor:
        """The tokens in 32 bits. Those of columns as wide or wider may not fit, and would become other tokens."""
        if stored.dtype in WIDE:
            values = stored.view(torch.int64) if stored.dtype == torch.uint64 else stored.to(torch.int64)
            wrong = (values < 0) | (values >= WIDEST)
            if wrong.any():
                self._refuse(stored, begin, int(wrong.int().argmax()))
            stored = values
        return stored.to(torch.int32)

    def _refuse(self, stored: Tensor, begin: int, at: int) -> None:
        value, sample = stored[at].item(), bisect_right(self.samples, begin + at) - 1
        raise UserError(
            f"token {value} is outside 0 to {WIDEST - 1:,}, which no vocabulary exceeds",
            where=f"{self.file}: sample {sample}",
            fix="write the data again: the column of tokens holds something else, or is damaged",
        )


@dataclass(frozen=True)
class ForeignShard:
    """One file: its tokens (a tensor, or rows read on demand) and where its documents start, closed by its length."""

    name: str
    tokens: Any
    starts: memoryview  # uint64
    signature: str  # changes with the content

    @property
    def shard(self) -> Shard:
        return Shard(self.name, self.starts[-1], len(self.starts) - 1, self.signature, self.signature)


class ForeignFiles:
    """The `Files` of a foreign data set."""

    def __init__(self, where: Path, dtype: str, shards: Sequence[ForeignShard], vocab: int | None) -> None:
        self.where, self.shards = str(where), {shard.name: shard for shard in shards}
        self.folder = where if where.is_dir() else where.parent
        self.manifest = Manifest(self._tokenizer(vocab), dtype, tuple(shard.shard for shard in shards))

    def _tokenizer(self, vocab: int | None) -> TokenizerId:
        """The tokenizer.json beside the data, where there is one."""
        if not (self.folder / TOKENIZER).is_file():
            return TokenizerId(UNNAMED, vocab or WIDEST, 0)
        from trainwright.train.data.tokenizer import open_tokenizer

        return open_tokenizer(str(self.folder)).id

    def tokens(self, shard: Shard) -> Any:
        return self.shards[shard.name].tokens

    def index(self, shard: Shard) -> memoryview:
        return self.shards[shard.name].starts

    def tokenizer(self) -> bytes | None:
        path = self.folder / TOKENIZER
        return path.read_bytes() if path.is_file() else None

    def tokenizer_settings(self) -> dict[str, bytes]:
        return {}

    def fetch(self, shard: Shard, start: int, count: int) -> None:
        return None


def starts_of(lengths: Tensor) -> memoryview:
    """Where each row starts, and where the last one ends."""
    content = bytearray(8 * (len(lengths) + 1))
    starts = torch.frombuffer(content, dtype=torch.int64)
    starts[0] = 0
    torch.cumsum(lengths.long(), 0, out=starts[1:])
    return memoryview(content).cast("Q")


def signature_of(*parts: str | bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
