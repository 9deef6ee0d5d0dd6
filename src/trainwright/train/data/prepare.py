"""Turns text into token shards, in parallel over cores; an interrupted run continues with the unfinished shards."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import zlib
from array import array
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from trainwright.errors import UserError
from trainwright.train.data.format import (
    MANIFEST,
    TOKENIZER,
    WIDTH,
    Manifest,
    Shard,
    TokenizerId,
    damaged,
    file_sha256,
    read_manifest,
    write_durably,
)
from trainwright.train.data.progress import Progress, si
from trainwright.train.data.readers import Piece, Reading, Text, input_files, pieces, texts
from trainwright.train.data.tokenizer import BUILT_IN, open_tokenizer, tokenizer_file
from trainwright.train.disk import amount, removed_on_error

SHARD_BYTES = 64 << 20
ENCODE_CHARACTERS = 1 << 20  # documents are tokenized in groups of about this size


@dataclass(frozen=True, slots=True)
class Job:
    """One shard to make: its name, its inputs, and how to read and encode them."""

    name: str
    folder: str
    pieces: tuple[Piece, ...]
    reading: Reading
    tokenizer: str
    end: str  # the word that ends a document, where the user named it
    dtype: str

    @property
    def size(self) -> int:
        return sum(p.size for p in self.pieces)

    @property
    def continues(self) -> bool:
        """Whether the first document began in the shard before: a piece of a file that is one document."""
        first = self.pieces[0]
        return first.kind == "text" and not self.reading.separator and first.start > 0

    def fingerprint(self, tokenizer: TokenizerId) -> str:
        """Identifies the shard's content; equal fingerprints mean equal shards."""
        changed = {p.path: os.stat(p.path).st_mtime_ns for p in self.pieces}
        inputs = [(p.display, p.kind, p.start, p.end, p.size, changed[p.path]) for p in self.pieces]
        words = json.dumps([inputs, asdict(self.reading), asdict(tokenizer), self.dtype])
        return hashlib.sha256(words.encode()).hexdigest()


def prepare(
    inputs: list[str],
    folder: Path,
    tokenizer: str = "bytes",
    reading: Reading | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    quiet: bool = False,
    end: str = "",
) -> Manifest:
    """Make (or finish making) the token shards of `inputs` in `folder`, and return their manifest."""
    identity = open_tokenizer(tokenizer, end).id
    dtype = "uint16" if identity.vocab <= 1 << 16 else "uint32"
    files = input_files(inputs)
    jobs = [
        Job(f"shard-{i:05d}", str(folder), group, reading or Reading(), tokenizer, end, dtype)
        for i, group in enumerate(assign_to_shards(files, reading or Reading(), shard_bytes))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    refuse_other_tokens(folder, identity)
    keep_tokenizer_file(tokenizer, folder)
    done = finished_shards(jobs, folder, identity)
    progress = Progress(sum(j.size for j in jobs), "B", "tokenizing", io.StringIO() if quiet else None)
    progress.skip(sum(j.size for j in jobs if j.name in done))
    for shard in run_jobs([j for j in jobs if j.name not in done], workers, progress):
        done[shard.name] = shard
    ordered = tuple(done[j.name] for j in jobs)
    manifest = Manifest(identity, dtype, ordered, tuple(inputs))
    if manifest.tokens == 0:
        raise UserError("the inputs hold no text", where=", ".join(inputs), fix="check the files")
    write_durably(folder / MANIFEST, manifest.to_json().encode())
    remove_leftovers(folder, manifest)
    progress.close(f"{si(manifest.tokens)} tokens, {len(ordered)} shards")
    return manifest


def keep_tokenizer_file(tokenizer: str, folder: Path) -> None:
    """Keep a tokenizer file beside the tokens it makes, so that a trained model can be exported with it."""
    if tokenizer not in BUILT_IN:
        content = tokenizer_file(tokenizer).read_bytes()
        kept = folder / TOKENIZER
        if not kept.exists() or kept.read_bytes() != content:
            write_durably(kept, content)


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove the records for restarts, and shards of an earlier preparation that the manifest does not name."""
    named = {name for shard in manifest.shards for name in (shard.data_file, shard.index_file)}
    for path in folder.glob("shard-*"):
        if path.name not in named:
            path.unlink()


def assign_to_shards(files: list[tuple[Path, str]], reading: Reading, shard_bytes: int) -> list[tuple[Piece, ...]]:
    """The inputs divided into shards of about `shard_bytes`, in order: the same inputs always give the same shards."""
    groups: list[list[Piece]] = [[]]
    held = 0
    for path, display in files:
        for piece in pieces(path, display, shard_bytes, reading):
            if held and held + piece.size > shard_bytes:
                groups.append([])
                held = 0
            groups[-1].append(piece)
            held += piece.size
    return [tuple(group) for group in groups]


def refuse_other_tokens(folder: Path, identity: TokenizerId) -> None:
    """A folder holds the tokens of one tokenizer."""
    if not (folder / MANIFEST).exists():
        return
    there = read_manifest(folder).tokenizer
    if there != identity:
        raise UserError(
            f"the folder holds tokens of {there.name!r} ({there.vocab:,} words), "
            f"not of {identity.name!r} ({identity.vocab:,} words)",
            where=str(folder),
            fix="give another --output folder",
        )


def finished_shards(jobs: list[Job], folder: Path, identity: TokenizerId) -> dict[str, Shard]:
    """The shards an earlier run finished from the same inputs, verified by their checksums."""
    known: dict[str, Shard] = {}
    if (folder / MANIFEST).exists():
        known = {s.name: s for s in read_manifest(folder).shards}
    for record in folder.glob("shard-*.json"):
        shard = Shard(**json.loads(record.read_text(encoding="utf-8")))
        known[shard.name] = shard
    kept = {}
    for job in jobs:
        earlier = known.get(job.name)
        if earlier is None or earlier.unit != job.fingerprint(identity):
            continue
        if not damaged(Manifest(identity, job.dtype, (earlier,)), folder):
            kept[job.name] = earlier
    return kept


def run_jobs(jobs: list[Job], workers: int | None, progress: Progress) -> Iterator[Shard]:
    """Make the shards, several at a time; one worker runs in this process."""
    workers = min(workers or len(os.sched_getaffinity(0)), len(jobs))
    if workers <= 1:
        for job in jobs:
            yield make_shard(job)
            progress.add(job.size)
        return
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=quiet_tokenizer_threads) as pool:
        running: dict[Future[Shard], Job] = {}
        waiting = iter(jobs)
        try:
            while True:
                # Two jobs per worker keep every core busy without queueing millions of jobs.
                for job in islice(waiting, 2 * workers - len(running)):
                    running[pool.submit(make_shard, job)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    progress.add(running.pop(future).size)
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def quiet_tokenizer_threads() -> None:
    """Disable threads inside each worker process: they would compete for the same cores."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def make_shard(job: Job) -> Shard:
    """Read, encode and write one shard; its record is written last, so a shard with a record is complete."""
    tokenizer = open_tokenizer(job.tokenizer, job.end)
    data, index = Path(job.folder, f"{job.name}.bin"), Path(job.folder, f"{job.name}.idx")
    record = Path(job.folder, f"{job.name}.json")
    record.unlink(missing_ok=True)
    fix = "free the disk, or give another --output; the same command continues with the unfinished shards"
    what = f" for the tokens of {amount(job.size)} of input"
    with removed_on_error(data, index, where=data, fix=fix, what=what):
        starts, length = array("Q", [0]), 0
        with data.open("wb") as out:
            for group in grouped(texts_of(job)):
                encoded = tokenizer.encode([part.text for part in group], job.dtype)
                for part, raw in zip(group, encoded, strict=True):
                    kept = raw if part.ends else memoryview(raw)[: -WIDTH[job.dtype]]  # without the end token
                    out.write(kept)
                    length += len(kept) // WIDTH[job.dtype]
                    if part.ends:
                        starts.append(length)
            if starts[-1] != length:  # the document goes on in the next shard
                starts.append(length)
            out.flush()
            os.fsync(out.fileno())
        with index.open("wb") as out:
            starts.tofile(out)
            out.flush()
            os.fsync(out.fileno())
        fingerprint = job.fingerprint(tokenizer.id)
        digests = file_sha256(data), file_sha256(index)
        shard = Shard(job.name, starts[-1], len(starts) - 1, *digests, fingerprint, job.continues)
        write_durably(record, json.dumps(asdict(shard)).encode())
        return shard


def texts_of(job: Job) -> Iterator[Text]:
    """The documents of a shard, long ones in parts; a damaged or truncated file is named in the error."""
    for piece in job.pieces:
        try:
            yield from texts(piece, job.reading)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(
                f"cannot be read to its end: {error}", where=piece.path, fix="copy the file again"
            ) from error


def grouped(parts: Iterator[Text]) -> Iterator[list[Text]]:
    """Lists of texts of about ENCODE_CHARACTERS together."""
    group: list[Text] = []
    held = 0
    for part in parts:
        group.append(part)
        held += len(part.text)
        if held >= ENCODE_CHARACTERS:
            yield group
            group, held = [], 0
    if group:
        yield group
