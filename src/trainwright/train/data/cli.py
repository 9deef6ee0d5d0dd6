"""`trainwright data`: prepare, show and verify token shards, bring data near. Nodes need no click for it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.data.format import MANIFEST, Manifest, damaged, read_manifest, write_durably
from trainwright.train.data.prepare import SHARD_BYTES, prepare
from trainwright.train.data.progress import si
from trainwright.train.data.readers import Piece, Reading, input_files, kind_of, texts
from trainwright.train.disk import removed_on_error

EXAMPLES = """examples:
  trainwright data prepare builtin:stdlib -o data/stdlib
  trainwright data prepare c4/*.json.gz -o data/c4 --tokenizer tokenizer.json
  trainwright data prepare books/ -o data/books --train-bpe 32000
  trainwright data chat chats.jsonl -o data/chats --tokenizer hf-folder --sequence 4096
  trainwright data show data/c4
  trainwright data stage s3://bucket/c4 -o /nvme/c4
"""


def parser() -> argparse.ArgumentParser:
    """The words of `trainwright data`."""
    top = argparse.ArgumentParser(
        prog="trainwright data",
        description="Turn text into token shards, which the loader reads.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    make = verbs.add_parser("prepare", help="tokenize files or folders into shards; continues where it was stopped")
    make.add_argument("inputs", nargs="+", metavar="INPUT", help="files, folders, or builtin:stdlib")
    make.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="where the shards go")
    make.add_argument(
        "--tokenizer", default="bytes", metavar="FILE", help="tokenizer.json, `bytes` (default) or `esm2`"
    )
    make.add_argument("--end-token", default="", metavar="WORD", help="the tokenizer's word that ends a document")
    make.add_argument("--train-bpe", type=count, metavar="WORDS", help="first train a byte-level BPE of this size here")
    make.add_argument("--field", default="text", help="the field of a record that holds the text (default: text)")
    make.add_argument("--separator", default="", metavar="TEXT", help="cuts text files into documents")
    make.add_argument(
        "--shard-size", type=count, default=SHARD_BYTES >> 20, metavar="MB", help="input MB per shard (64)"
    )
    make.add_argument("--workers", type=count, metavar="N", help="processes (default: one per core)")
    add_chat_verbs(verbs)
    add_moving_verbs(verbs)
    for name, text in (("show", "what a prepared folder holds"), ("verify", "verify a folder by its checksums")):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("folder", type=Path, metavar="FOLDER")
        verb.add_argument("--json", action="store_true", help="facts as JSON")
    return top


def add_chat_verbs(verbs: Any) -> None:
    """The verbs that prepare fine-tuning data: `chat` and `pairs`."""
    texts = {
        "chat": "chats (JSONL with `messages`) into rows with a loss mask, for --objective sft",
        "pairs": "preferences (JSONL with `chosen` and `rejected`) into rows, for --objective dpo",
    }
    for name, text in texts.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("inputs", nargs="+", metavar="INPUT", help="JSONL files")
        verb.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="where the rows go")
        verb.add_argument("--tokenizer", default="bytes", metavar="FOLDER", help="its chat template is used, if any")
        verb.add_argument("--sequence", type=count, required=True, metavar="N", help="tokens per row, as in training")


def add_moving_verbs(verbs: Any) -> None:
    """The verbs that bring data near: `preload`, `release`, `stage`."""
    texts = {
        "preload": "bring a folder's files onto the file system's own disks (Lustre: in from its bucket)",
        "release": "set the disk space of a Lustre folder's files free; the bucket keeps them",
        "stage": "copy a folder or s3://bucket/prefix to this node's disk; continues where it was stopped",
    }
    for name, text in texts.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("folder", metavar="SOURCE" if name == "stage" else "FOLDER")
        verb.add_argument("--workers", type=count, default=8, metavar="N", help="files at a time (default: 8)")
        verb.add_argument("--json", action="store_true", help="facts as JSON")
        if name == "preload":
            verb.add_argument("--checksums", type=Path, metavar="FILE", help="compare with a file of sha256sum")
            verb.add_argument("--stripes", type=int, metavar="N", help="spread new files over N disks (-1: all)")
        if name == "stage":
            verb.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="on a local disk")


def count(text: str) -> int:
    """A whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def main(words: list[str] | None = None) -> int:
    """Run one verb; the exit status."""
    args = parser().parse_args(words)
    if args.verb == "prepare":
        reading = Reading(args.field, args.separator)
        tokenizer = trained_tokenizer(args, reading) if args.train_bpe else args.tokenizer
        size = args.shard_size << 20
        made = prepare(args.inputs, args.output, tokenizer, reading, size, args.workers, end=args.end_token)
        show(made, args.output, as_json=False)
        return 0
    if args.verb in ("chat", "pairs"):
        from trainwright.train.data.chat import prepare_chats, prepare_pairs

        act = prepare_chats if args.verb == "chat" else prepare_pairs
        # Rows are written in one go: those of a new folder are of no use without its manifest.
        new = [] if args.output.exists() else [args.output]
        with removed_on_error(*new, where=args.output, fix="free the disk, or give another --output"):
            made = act(args.inputs, args.output, args.tokenizer, args.sequence)
        show(made, args.output, as_json=False)
        return 0
    if args.verb in ("preload", "release", "stage"):
        from trainwright.train.data.moving import move

        return move(args)
    if not (args.folder / MANIFEST).exists():
        from trainwright.train.data.foreign.facts import is_foreign, show_foreign, verify_foreign

        if is_foreign(args.folder):
            (show_foreign if args.verb == "show" else verify_foreign)(args.folder, args.json)
            return 0
    manifest = read_manifest(args.folder)
    if args.verb == "show":
        show(manifest, args.folder, args.json)
        return 0
    wrong = damaged(manifest, args.folder)
    if args.json:
        print(json.dumps({"folder": str(args.folder), "shards": len(manifest.shards), "damaged": wrong}))
    else:
        print("\n".join(f"damaged: {w}" for w in wrong) or f"intact: {len(manifest.shards)} shards")
    return 1 if wrong else 0


def trained_tokenizer(args: argparse.Namespace, reading: Reading) -> str:
    """Train a BPE on the inputs (once: a second run with the same request reuses it), and return its path."""
    from trainwright.train.data.tokenizer import train_bpe

    if args.tokenizer != "bytes":
        raise UserError("--tokenizer and --train-bpe exclude each other", fix="give one of the two")
    path, request = args.output / "tokenizer.json", {"words": args.train_bpe, "inputs": args.inputs}
    note = path.with_name("tokenizer.request.json")
    before = json.loads(note.read_text(encoding="utf-8")) if note.exists() and path.exists() else request
    if before != request:
        raise UserError(
            f"the tokenizer here has {before['words']:,} words from {before['inputs']}, not {args.train_bpe:,} "
            f"from {args.inputs}",
            where=str(path),
            fix="give another --output folder",
        )
    if not path.exists():
        files = input_files(args.inputs)
        print(f"training a BPE of {args.train_bpe:,} words on {len(files)} files", file=sys.stderr)
        whole = (Piece(str(p), kind_of(p) or "text", 0, row_groups(p), p.stat().st_size) for p, _ in files)
        train_bpe((part.text for piece in whole for part in texts(piece, reading)), args.train_bpe, path)
        write_durably(note, json.dumps(request).encode())
    return str(path)


def row_groups(path: Path) -> int:
    """Where a piece that is the whole file ends: in row groups for parquet, in bytes else."""
    from trainwright.train.data.readers import parquet_file

    return parquet_file(path).metadata.num_row_groups if kind_of(path) == "parquet" else path.stat().st_size


def show(manifest: Manifest, folder: Path, as_json: bool) -> None:
    """The facts of a prepared folder, on stdout."""
    size = sum(manifest.data_bytes(s) + manifest.index_bytes(s) for s in manifest.shards)
    facts = {
        "folder": str(folder),
        "tokenizer": manifest.tokenizer.name,
        "vocab": manifest.tokenizer.vocab,
        "tokens": manifest.tokens,
        "documents": manifest.documents,
        "shards": len(manifest.shards),
        "dtype": manifest.dtype,
        "bytes": size,
    }
    if as_json:
        print(json.dumps(facts))
        return
    mean = manifest.tokens / max(1, manifest.documents)
    print(f"{folder}")
    print(f"  tokens      {manifest.tokens:,} ({si(manifest.tokens).strip()})")
    print(f"  documents   {manifest.documents:,}, {mean:,.0f} tokens each on average")
    print(f"  tokenizer   {manifest.tokenizer.name}, {manifest.tokenizer.vocab:,} words, end {manifest.tokenizer.eos}")
    print(f"  shards      {len(manifest.shards)} of {manifest.dtype}, {si(size)}B")
