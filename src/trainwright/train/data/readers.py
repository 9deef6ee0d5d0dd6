"""Reading documents out of text, JSONL (also .gz, .zst) and parquet files, in pieces that can be read in parallel."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.errors import UserError, did_you_mean
from trainwright.train.data.compressed import PACKED, open_input

TEXT = (".txt", ".text", ".md", ".py", ".rst")
JSONL = (".jsonl", ".ndjson", ".json")
FASTA = (".fasta", ".fa", ".faa")
STDLIB = "builtin:stdlib"
PART = 1 << 20  # bytes of a long document that are tokenized at once
LONGEST_PART = 4 << 20  # where it has no line ends
CUT = re.compile(rb"[^\s]\n(?=[^\s])")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one input file: bytes start..end of a plain file, row groups of a parquet file, or all of it."""

    path: str
    kind: str  # text | jsonl | fasta | parquet
    start: int
    end: int
    size: int  # bytes of input, for balance and for the progress bar
    display: str = ""  # a machine-independent name, for the built-in corpus


@dataclass(frozen=True, slots=True)
class Reading:
    """How documents are found in a file."""

    field: str = "text"  # of a JSONL record or a parquet table
    separator: str = ""  # cuts a text file into documents; without one, a file is one document


@dataclass(frozen=True, slots=True)
class Text:
    """A document, or a part of one."""

    text: str
    ends: bool = True  # the document ends here


def kind_of(path: Path) -> str | None:
    """text, jsonl, fasta or parquet, by the name; None for a file that is none of them."""
    suffixes = [s for s in path.suffixes if s not in PACKED]
    last = suffixes[-1].lower() if suffixes else ""
    if last == ".parquet":
        return "parquet"
    if last in FASTA:
        return "fasta"
    return "jsonl" if last in JSONL else "text" if last in TEXT else None


def input_files(names: list[str]) -> list[tuple[Path, str]]:
    """Every input file with the name to show for it; folders are searched, in sorted order."""
    files_and_names: list[tuple[Path, str]] = []
    for name in names:
        if name == STDLIB:
            root = Path(sysconfig.get_paths()["stdlib"])
            files_and_names += [(p, f"stdlib/{p.relative_to(root).as_posix()}") for p in stdlib_files(root)]
            continue
        if name.startswith("builtin:"):
            raise UserError(f"no such built-in corpus {name!r}", fix=did_you_mean(name, [STDLIB]) or f"use {STDLIB}")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or folder", where=name, fix="check the path")
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and kind_of(p))
        if path.is_file() and kind_of(path) is None:
            raise UserError(f"cannot read {path.suffix or 'a file without a suffix'}", where=name, fix=known_kinds())
        files_and_names += [(p, str(p)) for p in files]
    if not files_and_names:
        raise UserError("no input files found", where=", ".join(names), fix=known_kinds())
    return files_and_names


def known_kinds() -> str:
    return f"give {', '.join((*TEXT, *JSONL, *FASTA))} (also with .gz or .zst) or .parquet files"


# Modules that a distribution patches, or packs apart from the rest, so that not every installation has the same.
NOT_EVERYWHERE = frozenset({
    "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site", "sysconfig", "tkinter", "turtle",
    "turtledemo", "venv",
})  # fmt: skip


def stdlib_files(root: Path) -> list[Path]:
    """The Python standard library's own source, without its tests: real text, present on any machine, and the same
    wherever the same Python is: what a site, a distribution or the build added is left out."""
    modules = sys.stdlib_module_names - NOT_EVERYWHERE
    files: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        top = Path(folder) == root
        skipped = {"test", "tests", "__pycache__"}
        subfolders[:] = sorted(name for name in subfolders if name not in skipped and (not top or name in modules))
        own = [name for name in names if name.endswith(".py") and (not top or name.removesuffix(".py") in modules)]
        files += [path for name in own if not (path := Path(folder, name)).is_symlink()]
    return sorted(files)


def pieces(path: Path, display: str, target: int, reading: Reading) -> Iterator[Piece]:
    """A file cut into pieces of about `target` bytes, where its format allows a cut."""
    kind = kind_of(path) or "text"
    size = path.stat().st_size
    if kind == "parquet":
        parquet = parquet_file(path)
        for group in range(parquet.metadata.num_row_groups):
            yield Piece(str(path), kind, group, group + 1, parquet.metadata.row_group(group).total_byte_size, display)
    elif path.suffix in PACKED or (kind == "text" and reading.separator and not cuts_cleanly(reading.separator)):
        yield Piece(str(path), kind, 0, size, size, display)
    else:
        for start in range(0, size, target):
            yield Piece(str(path), kind, start, min(start + target, size), min(target, size - start), display)


def cuts_cleanly(separator: str) -> bool:
    """Whether a file can be split anywhere: not if the separator overlaps itself, as its start is ambiguous then."""
    return bool(separator) and not any(separator.startswith(separator[i:]) for i in range(1, len(separator)))


def texts(piece: Piece, reading: Reading) -> Iterator[Text]:
    """The texts of a piece, a long one in several parts, so that no document has to fit in memory."""
    if piece.kind == "text" and not reading.separator:
        yield from one_document(piece)
    else:
        yield from (Text(text) for text in documents(piece, reading) if text)


def one_document(piece: Piece) -> Iterator[Text]:
    """The text of a file that is one document, or the part of it in this piece, cut into parts after line ends.

    A cut follows a newline whose neighbours are not white space, where tokenizers start a new token anyway."""
    path = Path(piece.path)
    packed = path.suffix in PACKED
    with open_input(path) as handle:
        begin = 0 if packed or piece.start == 0 else next_cut(handle, piece.start)
        last = packed or piece.end >= path.stat().st_size
        end = None if last else next_cut(handle, piece.end)
        if begin and (end is not None and begin >= end):
            return
        if not packed:
            handle.seek(begin)
        left, held, started = (None if end is None else end - begin), b"", begin > 0
        while block := handle.read(PART if left is None else min(PART, left)):
            left = None if left is None else left - len(block)
            held += block
            cut = last_cut(held) if len(held) > PART else 0
            if cut:
                yield Text(held[:cut].decode("utf-8", "replace"), ends=False)
                held, started = held[cut:], True
        if held or (last and started):
            yield Text(held.decode("utf-8", "replace"), ends=last)


def next_cut(handle: BinaryIO, start: int) -> int:
    """Where the first part that starts at or after `start` begins; the end of the file where no line ends there."""
    handle.seek(start)
    at, tail = start, b""
    while block := handle.read(PART):
        tail += block
        match = CUT.search(tail)
        if match:
            return at + match.start() + 2
        at, tail = at + len(tail) - 2, tail[-2:]
    return at + len(tail)


def last_cut(held: bytes) -> int:
    """The length of the longest part that can be encoded by itself; 0 where there is none yet. A text without line ends
    is cut at a space, or between two characters."""
    at = len(held)
    while (at := held.rfind(b"\n", 1, at)) > 0:
        if CUT.match(held, at - 1):
            return at + 1
    if len(held) < LONGEST_PART:
        return 0
    at = held.rfind(b" ", 1) if b" " in held[1:] else len(held) - 1
    while at > 0 and held[at] & 0xC0 == 0x80:
        at -= 1
    return at


def documents(piece: Piece, reading: Reading) -> Iterator[str]:
    """The documents of a piece with records or rows. A record belongs to the piece in which it starts."""
    path = Path(piece.path)
    if piece.kind == "parquet":
        yield from parquet_documents(path, piece, reading)
        return
    separator = {"jsonl": b"\n", "fasta": b"\n>"}.get(piece.kind) or reading.separator.encode()
    whole = path.suffix in PACKED
    with open_input(path) as handle:
        end = None if whole else piece.end
        for offset, record in records(handle, 0 if whole else piece.start, end, separator):
            if record.strip():
                where = f"{path}: byte {offset}"
                if piece.kind == "jsonl":
                    yield json_text(record, reading.field, where)
                elif piece.kind == "fasta":
                    yield fasta_sequence(record, first=offset == 0, where=where)
                else:
                    yield record.decode("utf-8", "replace")


def records(handle: BinaryIO, start: int, end: int | None, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, record) for every record that starts in start..end; the last one may reach past `end`."""
    base = max(0, start - len(separator))
    if base:
        handle.seek(base)
    buffer, offset, skipping = b"", base, start > 0
    while True:
        more = handle.read(1 << 20)
        buffer += more
        cut = 0
        while (at := buffer.find(separator, cut)) >= 0:
            if not skipping:
                if end is not None and offset >= end:
                    return
                yield offset, buffer[cut:at]
            # A record that began before this piece belongs to the piece before it.
            offset += at + len(separator) - cut
            skipping = offset < start
            cut = at + len(separator)
        buffer = buffer[cut:]
        if not more:
            if buffer and not skipping and (end is None or offset < end):
                yield offset, buffer
            return


def json_text(record: bytes, field: str, where: str) -> str:
    try:
        row: Any = json.loads(record)
    except ValueError as error:
        raise UserError(f"not JSON: {error}", where=where, fix="one JSON object per line") from error
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        names = sorted(row) if isinstance(row, dict) else []
        raise UserError(f"no text in field {field!r}; the record has {names}", where=where, fix="name it with --field")
    return row[field]


def fasta_sequence(record: bytes, first: bool, where: str) -> str:
    """The residues of one record, whose lines may be cut anywhere; its header is left out."""
    header, _, lines = record.partition(b"\n")
    if first and not header.startswith(b">"):
        raise UserError("not FASTA: a record begins with a header line", where=where, fix=">name, then the residues")
    sequence = b"".join(lines.split()).rstrip(b"*").upper()
    if not sequence:
        raise UserError("a FASTA record without residues", where=where, fix="remove it, or complete the file")
    return sequence.decode("ascii", "replace")


def parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "reading parquet needs the `pyarrow` package", where=str(path), fix="pip install pyarrow"
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (ValueError, OSError) as error:
        raise UserError(f"cannot be read as parquet: {error}", where=str(path), fix="copy the file again") from error


def parquet_documents(path: Path, piece: Piece, reading: Reading) -> Iterator[str]:
    parquet = parquet_file(path)
    if reading.field not in parquet.schema_arrow.names:
        raise UserError(
            f"no column {reading.field!r}; the table has {parquet.schema_arrow.names}",
            where=str(path),
            fix="name it with --field",
        )
    for batch in parquet.iter_batches(row_groups=list(range(piece.start, piece.end)), columns=[reading.field]):
        texts = [text for text in batch.column(0).to_pylist() if text]
        if texts and not isinstance(texts[0], str):
            raise UserError(
                f"column {reading.field!r} holds {batch.schema.field(0).type}, not text",
                where=str(path),
                fix="name a column of text with --field",
            )
        yield from texts
