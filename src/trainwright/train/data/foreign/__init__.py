"""Data that other tools prepared, read as it is: Megatron's .bin/.idx, MosaicML's MDS, Hugging Face's arrow folders.
Each becomes the stream of tokens and document starts that our own shards are, so that order, mixtures, hold-out and
resume are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwright.train.data.foreign.rows import ForeignFiles


def foreign_kind(path: Path) -> Any:
    """The module that reads data of this kind, or None."""
    from trainwright.train.data.foreign import arrow, mds, megatron

    return next((kind for kind in (megatron, mds, arrow) if kind.recognises(path)), None)


def open_foreign(name: str, vocab: int | None) -> ForeignFiles | None:
    """The data set of that name, where it is one of these kinds. `vocab` is the model's: these formats keep none."""
    kind = foreign_kind(Path(name))
    files: ForeignFiles | None = kind.read(Path(name), vocab) if kind else None
    return files
