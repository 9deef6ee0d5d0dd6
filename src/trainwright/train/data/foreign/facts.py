"""What `data show` and `data verify` say of data that other tools prepared. None of these formats keeps checksums of
its content that its own reader checks, so `verify` reads everything and claims no more than that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from trainwright.errors import UserError
from trainwright.train.data.foreign import foreign_kind
from trainwright.train.data.foreign.rows import UNNAMED, ForeignFiles
from trainwright.train.data.progress import si

SCAN = 1 << 22  # tokens at a time
UNCHECKED = "the format keeps no checksums: compare with the source (sha256sum) to find changed bytes"


def is_foreign(path: Path) -> bool:
    return _holds_tars(path) or foreign_kind(path) is not None


def show_foreign(path: Path, as_json: bool) -> None:
    """The facts of a data set, on stdout."""
    kind = _tokens_kind(path)
    files: ForeignFiles = kind.read(path, None)
    manifest, named = files.manifest, files.manifest.tokenizer.name != UNNAMED
    facts = {
        "folder": str(path),
        "format": kind.NAME,
        "tokenizer": manifest.tokenizer.name if named else None,
        "vocab": manifest.tokenizer.vocab if named else None,
        "tokens": manifest.tokens,
        "documents": manifest.documents,
        "shards": len(manifest.shards),
    }
    if as_json:
        print(json.dumps(facts))
        return
    tokenizer = f"{manifest.tokenizer.name}, {manifest.tokenizer.vocab:,} words" if named else "not named by the data"
    mean = manifest.tokens / max(1, manifest.documents)
    print(f"{path}")
    print(f"  format      {kind.NAME}")
    print(f"  tokens      {manifest.tokens:,} ({si(manifest.tokens).strip()})")
    print(f"  documents   {manifest.documents:,}, {mean:,.0f} tokens each on average")
    print(f"  tokenizer   {tokenizer}")
    print(f"  shards      {len(manifest.shards)}")


def verify_foreign(path: Path, as_json: bool) -> None:
    """Read every token; the first file that cannot be read is raised as an error that names it."""
    kind = _tokens_kind(path)
    files: ForeignFiles = kind.read(path, None)
    largest = max((_largest(files.tokens(shard), shard.tokens) for shard in files.manifest.shards), default=-1)
    count = len(files.manifest.shards)
    if as_json:
        facts = {"folder": str(path), "format": kind.NAME, "shards": count, "damaged": [], "largest_token": largest}
        print(json.dumps(facts))
        return
    print(f"readable: {count} shard{'s' * (count != 1)} of {kind.NAME}, largest token {largest:,}; {UNCHECKED}")


def _largest(tokens: Any, count: int) -> int:
    largest = -1
    for begin in range(0, count, SCAN):
        part = tokens[begin : min(count, begin + SCAN)]
        wide = part.int().bitwise_and_(0xFFFF) if part.dtype == torch.int16 else part  # stored without a sign
        largest = max(largest, int(wide.max()))
    return largest


def _tokens_kind(path: Path) -> Any:
    kind = foreign_kind(path)
    if kind is None:
        what = "a WebDataset of images, and these two verbs read tokens"
        fix = "`tar -tf FILE` lists it; a run with --data finds truncated files before its first step"
        raise UserError(what, where=str(path), fix=fix)
    return kind


def _holds_tars(path: Path) -> bool:
    return path.suffix == ".tar" or next(path.glob("*.tar"), None) is not None
