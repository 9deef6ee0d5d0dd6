"""The loader: which samples make up each step on every rank, and a thread that prefetches them.

Its whole state is one number, how many samples the job has seen. Every rank derives its share of the next global batch
from it, so a job that resumes with another number of ranks continues with exactly the samples not yet seen."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.data.foreign.rows import UNNAMED
from trainwright.train.data.format import TokenizerId
from trainwright.train.data.kinds import require_kind
from trainwright.train.data.mixture import Mixture, Part
from trainwright.train.data.shuffle import Permutation
from trainwright.train.data.source import Files, TokenSource, outside, stack_rows, widen
from trainwright.train.data.special_tokens import SampleTokens

S = TypeVar("S", bound="Samples")
LONG_DOCUMENT = 400  # tokens; above this mean length numbering documents one by one is faster


class SampleId(NamedTuple):
    """One sample: its source, the epoch of that source, and its index."""

    source: int
    epoch: int
    sample: int


@dataclass(frozen=True, slots=True)
class Options:
    """How samples are cut and ordered."""

    sequence: int
    seed: int = 0
    shuffle: bool = True
    isolate: bool = True  # no attention across documents
    holdout: float = 0.0  # this share of each source, from its end, is held out for evaluation


@dataclass(frozen=True, slots=True)
class StepData:
    """What one rank gets for one step."""

    microbatches: list[Batch]
    samples: list[SampleId]
    seen: int  # samples the whole job has seen once this step is done


class Samples:
    """All samples, in the order the job sees them."""

    holds: ClassVar[str] = ""  # what the data must hold, as its manifest says: text
    for_decoders: ClassVar[bool] = True
    rows_per_sample: ClassVar[int] = 1  # of a prepared folder with rows

    def __init__(self, sources: Sequence[TokenSource], weights: Sequence[float], options: Options, held: bool = False):
        self.sources = list(sources)
        self.options = options
        self.vocab = self.sources[0].manifest.tokenizer.vocab
        self.mixture = Mixture(weights)
        kept = [round(s.samples * options.holdout) for s in self.sources]
        self.first = [s.samples - k if held else 0 for s, k in zip(self.sources, kept, strict=True)]
        self.counts = [k if held else s.samples - k for s, k in zip(self.sources, kept, strict=True)]
        if min(self.counts) < 1:
            total, kept_back = self.sources[0].samples, kept[0]
            raise UserError(
                f"holding out {options.holdout:.2%} of {total:,} samples leaves {kept_back:,} to evaluate on and "
                f"{total - kept_back:,} to train on",
                fix=f"a share between {1 / total:.2%} and {1 - 1 / total:.2%}, or more data",
            )
        self._orders: dict[tuple[int, int], Permutation] = {}

    @classmethod
    def require(cls, files: Files, options: Options) -> None:
        """Refuse data that these samples cannot be taken from."""
        require_kind(files, cls.holds, cls.for_decoders)

    @property
    def epoch_samples(self) -> int:
        """Samples after which the first source to run out has been seen once."""
        return self.mixture.epoch(self.counts)

    @property
    def parts(self) -> list[Part]:
        """The sources and how many samples of each are used."""
        return self.mixture.parts([source.files.where for source in self.sources], self.counts)

    @property
    def identity(self) -> list[list[str | int]]:
        """Identifies the samples by content: each source's fingerprint and its share of the mixture."""
        return [[s.manifest.fingerprint, k] for s, k in zip(self.sources, self.mixture.shares, strict=True)]

    @property
    def tokenizer_id(self) -> TokenizerId | None:
        """Which tokenizer made the tokens."""
        identity = self.sources[0].manifest.tokenizer
        return None if identity.name == UNNAMED else identity

    def tokenizer(self) -> tuple[TokenizerId | None, bytes | None]:
        """The same, and its file where the data keeps it."""
        identity = self.tokenizer_id
        return identity, self.sources[0].files.tokenizer() if identity is not None else None

    def tokenizer_settings(self) -> dict[str, bytes]:
        """The further files of that tokenizer that the data keeps."""
        return self.sources[0].files.tokenizer_settings()

    def added_tokens(self) -> SampleTokens:
        """The tokens of a sample that do not come from the tokenizer."""
        return SampleTokens()

    def locate(self, n: int) -> SampleId:
        """The n-th sample of the job."""
        source, index = self.mixture.locate(n)
        epoch, place = divmod(index, self.counts[source])
        if self.options.shuffle:
            place = self._order(source, epoch)(place)
        return SampleId(source, epoch, self.first[source] + place)

    def _order(self, source: int, epoch: int) -> Permutation:
        key = (source, epoch)
        if key not in self._orders:
            self._orders = {k: v for k, v in self._orders.items() if k[1] >= epoch - 1}
            self._orders[key] = Permutation(self.counts[source], self.options.seed, source, epoch)
        return self._orders[key]

    def grouped_batch(self, ids: Sequence[SampleId]) -> Batch:
        """The samples of one micro-batch, those with several documents first: attention over the others is causal."""
        if not self.options.isolate:
            return self.batch(ids)
        mixed = [which for which in ids if self._is_mixed(which)]
        batch = self.batch([*mixed, *(which for which in ids if which not in mixed)])
        batch.mixed_rows = len(mixed)
        return batch

    def _is_mixed(self, which: SampleId) -> bool:
        starts = self.sources[which.source].document_starts(which.sample)
        return any(at < self.options.sequence for at in starts)

    def batch(self, ids: Sequence[SampleId]) -> Batch:
        """The samples of one micro-batch."""
        rows, width = len(ids), self.options.sequence
        stored = stack_rows([self.sources[which.source].tokens(which.sample) for which in ids])
        # One allocation, not four: malloc keeps its pages for the next batch instead of returning them to the system.
        tokens, targets, positions, documents = torch.empty(4, rows, width, dtype=torch.int64)
        widen(stored[:, :-1], self.vocab, tokens)
        widen(stored[:, 1:], self.vocab, targets)
        self._require_known(stored, ids)
        if not self.options.isolate:
            positions.copy_(torch.arange(width))
            return Batch(tokens, targets, positions)
        cuts, ends = self._boundaries(ids)
        if ends:
            targets.view(-1)[torch.tensor(ends)] = IGNORED
        long = len(cuts) * LONG_DOCUMENT < rows * width
        (number_one_by_one if long else number_at_once)(cuts, positions, documents)
        return Batch(tokens, targets, positions, documents)

    def _require_known(self, stored: Tensor, ids: Sequence[SampleId]) -> None:
        """A token outside the vocabulary would fail inside a kernel, far from its cause, or count as ignored."""
        wrong = outside(stored, self.vocab)
        if wrong is not None:
            where = ", ".join(sorted({self.sources[which.source].files.where for which in ids}))
            raise UserError(
                f"token {wrong} in samples {[which.sample for which in ids]}, but the vocabulary has {self.vocab:,}",
                where=where,
                fix=self._vocabulary_fix(wrong),
            )

    def _vocabulary_fix(self, token: int) -> str:
        if self.sources[0].manifest.tokenizer.name == UNNAMED and token >= 0:
            larger = f"a model with a vocabulary of at least {token + 1:,}"
            return f"{larger} (`trainwright data verify` names the largest token), or the data copied again"
        return "`trainwright data verify` finds damaged files; prepare the data again"

    def _boundaries(self, ids: Sequence[SampleId]) -> tuple[list[int], list[int]]:
        """Offsets, over the concatenated rows, of document starts and of the tokens before them."""
        width = self.options.sequence
        cuts: list[int] = []
        ends: list[int] = []
        for row, which in enumerate(ids):
            base = row * width
            cuts.append(base)
            for at in self.sources[which.source].document_starts(which.sample):
                ends.append(base + at - 1)
                if at < width:
                    cuts.append(base + at)
        return cuts, ends


def number_at_once(cuts: list[int], positions: Tensor, documents: Tensor) -> None:
    """Fill in positions and document numbers from where documents start, in a few passes over all tokens."""
    begins, flat = torch.tensor(cuts), documents.view(-1)
    flat.zero_()
    flat[begins[1:]] = 1
    torch.cumsum(flat, 0, out=flat)
    torch.sub(torch.arange(flat.numel()), begins.index_select(0, flat), out=positions.view(-1))
    documents.sub_(documents[:, :1].clone())


def number_one_by_one(cuts: list[int], positions: Tensor, documents: Tensor) -> None:
    """The same, document by document, which is faster for long ones: it touches each token once or twice."""
    width, end_of_all = positions.shape[1], positions.numel()
    ramp = torch.arange(width)
    positions.copy_(ramp)
    documents.zero_()
    flat_positions, flat_documents, number = positions.view(-1), documents.view(-1), 0
    for begin, end in pairwise([*cuts, end_of_all]):
        number = 0 if begin % width == 0 else number + 1
        if number:
            flat_positions[begin:end] = ramp[: end - begin]
            flat_documents[begin:end] = number


class Loader:
    """One rank's share of each global batch, split into micro-batches and prefetched by a thread."""

    def __init__(
        self, samples: Samples, global_batch: int, micro_batch: int, rank: int = 0, world: int = 1, pin: bool = False
    ) -> None:
        if global_batch % (world * micro_batch):
            whole = max(1, round(global_batch / (world * micro_batch))) * world * micro_batch
            raise UserError(
                f"a global batch of {global_batch} samples does not divide over {world} data ranks x "
                f"micro-batches of {micro_batch} = {world * micro_batch}",
                fix=f"--batch {whole}",
            )
        self.samples = samples
        self.global_batch, self.micro_batch = global_batch, micro_batch
        self.rank, self.share = rank, global_batch // world
        self.pin = pin

    def step(self, seen: int) -> StepData:
        """This rank's data for the step that starts when the job has seen `seen` samples."""
        begin = seen + self.rank * self.share
        ids = [self.samples.locate(n) for n in range(begin, begin + self.share)]
        # The order of the rows in a micro-batch is free. On a GPU it saves time; on a CPU results stay as they were.
        make = self.samples.grouped_batch if self.pin else self.samples.batch
        batches = [make(ids[i : i + self.micro_batch]) for i in range(0, self.share, self.micro_batch)]
        return StepData([b.pin() for b in batches] if self.pin else batches, ids, seen + self.global_batch)

    def evaluation(self, count: int) -> Iterator[Batch]:
        """This rank's share of the first `count` samples, each once. The set does not depend on the number of ranks;
        where it does not divide, rows without targets fill up, so that all ranks have as many micro-batches."""
        ranks, rank = self.global_batch // self.share, self.rank
        for begin in range(0, count, ranks * self.micro_batch):
            numbers = range(begin + rank * self.micro_batch, begin + (rank + 1) * self.micro_batch)
            batch = self.samples.batch([self.samples.locate(min(n, count - 1)) for n in numbers])
            batch.ignore_rows([n >= count for n in numbers])
            yield batch.pin() if self.pin else batch

    def steps(self, seen: int, ahead: int = 2) -> Generator[StepData, None, None]:
        """Endless steps from `seen` on, with up to `ahead` of them prefetched."""
        if ahead < 1:
            while True:
                data = self.step(seen)
                seen = data.seen
                yield data
        yield from _prefetch(self, seen, ahead)


def _prefetch(loader: Loader, seen: int, depth: int) -> Generator[StepData, None, None]:
    ready: queue.Queue[StepData | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def fill() -> None:
        at = seen
        try:
            while not stopped.is_set():
                data = loader.step(at)
                at = data.seen
                ready.put(data)
        except BaseException as error:
            ready.put(error)  # raised in the training loop

    filler = threading.Thread(target=fill, name="trainwright-data", daemon=True)
    filler.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        # The thread may be blocked on a full queue; it ends after its current step.
        while filler.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.01)
