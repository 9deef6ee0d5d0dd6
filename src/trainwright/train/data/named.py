"""What `--data` names: folders with weights, opened and brought into one order of samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.data.foreign import foreign_kind
from trainwright.train.data.foreign.rows import UNNAMED
from trainwright.train.data.format import TokenizerId
from trainwright.train.data.kinds import resolved
from trainwright.train.data.loader import Options, S, Samples
from trainwright.train.data.source import NO_FOLDER, Files, TokenSource, open_files


def parse_mixture(names: Sequence[str]) -> tuple[list[str], list[float]]:
    """`A`, or `A:0.7 B:0.3`: data sets with weights. Without a weight a data set counts 1. What is there under the
    whole name has none."""
    paths, weights = [], []
    for name in names:
        head, colon, tail = name.rpartition(":")
        whole = Path(name).exists() or foreign_kind(Path(name)) is not None
        try:
            weight = float(tail) if colon and head and not whole else None
        except ValueError:
            weight = None
        paths.append(name if weight is None else head)
        weights.append(1.0 if weight is None else weight)
    return paths, weights


def require_one_tokenizer(first: TokenizerId, other: TokenizerId, where: str) -> None:
    """Refuse to train or evaluate one model on tokens of two tokenizers."""
    if not other.is_same(first) or (other.vocab, other.eos) != (first.vocab, first.eos):
        what = f"tokens of {other.described} cannot be mixed with tokens of {first.described}"
        raise UserError(what, where=where, fix="prepare both with the same tokenizer")


def _opened(name: str, path: str, cache: Path | None, vocab: int | None) -> Files:
    """The files of a data set; where they are missing, the message says which part of its name was read as a weight."""
    try:
        return open_files(path, cache, vocab)
    except UserError as error:
        if error.what != NO_FOLDER or not name.startswith(f"{path}:"):
            raise
        what = f"{NO_FOLDER} (`{name.removeprefix(path)}` was read as its weight)"
        raise UserError(what, where=error.where, fix=error.fix) from None


def open_samples(
    names: Sequence[str],
    options: Options,
    cache: Path | None = None,
    vocab: int | None = None,
    held: bool = False,
    kind: type[S] | partial[S] = Samples,  # type: ignore[assignment]
) -> S:
    """The samples of a mixture, checked against the model's vocabulary."""
    paths, weights = parse_mixture(names)
    own: Any = kind.func if isinstance(kind, partial) else kind
    rows = options.sequence // own.rows_per_sample
    meant = [resolved(path, own.holds, own.for_decoders, rows) for path in paths]
    files = [_opened(name, one, cache, vocab) for name, one in zip(names, meant, strict=True)]
    for one in files:
        own.require(one, options)
    sources = [TokenSource(one, options.sequence) for one in files]
    first = sources[0].manifest.tokenizer
    if first.name == UNNAMED and kind is not Samples:
        fix = "the tokenizer.json that made the tokens, beside them"
        raise UserError("this objective needs the special tokens of the data's tokenizer", where=paths[0], fix=fix)
    for path, source in zip(paths, sources, strict=True):
        tokenizer = source.manifest.tokenizer
        require_one_tokenizer(first, tokenizer, path)
        if vocab is not None and tokenizer.vocab > vocab:
            raise UserError(
                f"the data's vocabulary has {tokenizer.vocab:,} words, the model's {vocab:,}",
                where=path,
                fix=f"a model with at least {tokenizer.vocab:,}, or data prepared with a smaller tokenizer",
            )
    return kind(sources, weights, options, held)
