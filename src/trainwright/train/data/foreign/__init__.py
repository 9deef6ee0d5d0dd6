"""Data that other tools prepared, read as it is: Megatron's .bin/.idx, MosaicML's MDS, Hugging Face's arrow folders.
Each becomes the stream of tokens and document starts that our own shards are, so that order, mixtures, hold-out and
resume are the same."""

from __future__ import annotations

from pathlib import Path

from trainwright.train.data.foreign.rows import ForeignFiles


def open_foreign(name: str, vocab: int | None) -> ForeignFiles | None:
    """The data set of that name, where it is one of these kinds. `vocab` is the model's: these formats keep none."""
    from trainwright.train.data.foreign import arrow, mds, megatron

    path = Path(name)
    for kind in (megatron, mds, arrow):
        if kind.recognises(path):
            return kind.read(path, vocab)
    return None
