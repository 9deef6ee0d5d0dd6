"""Data that is present on any machine, to try things out: proteins, chats and preferences, made on first use and cached
beside `builtin:stdlib`. Chats are questions about functions of the standard library, answered by their docstrings."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwright.errors import UserError
from trainwright.train.data.format import MANIFEST, beside
from trainwright.train.disk import CACHE_FULL, DiskFull, removed_on_error

PROTEINS, CHATS, PAIRS = "builtin:proteins", "builtin:chats", "builtin:pairs"
STDLIB, TEXTURES = "builtin:stdlib", "builtin:textures"  # made elsewhere: text that is read in place, images
HOLDS = {STDLIB: "", PROTEINS: "", CHATS: "chats", PAIRS: "pairs", TEXTURES: "images"}
RESIDUES = "LAGVSERTIDPKQNFYMHWC"


def builtin_folder(name: str, sequence: int = 0) -> Path:
    """The prepared folder of a built-in data set; chats and pairs are packed into rows of `sequence` tokens."""
    from trainwright.train.data.source import cache_home

    version = sysconfig.get_config_var("VERSION")
    # The number counts changes of what is prepared.
    folder = cache_home() / f"{name.removeprefix('builtin:')}-{version}{f'-{sequence}-2' if sequence else ''}"
    if not (folder / MANIFEST).exists():
        # Several ranks may do this at once: each prepares its own, and the first rename wins.
        own = beside(folder)
        with removed_on_error(own, where=folder, fix=CACHE_FULL):
            own.mkdir(parents=True)
            try:
                MAKERS[name](own, sequence)
            except DiskFull:
                raise
            except UserError as error:
                raise UserError(error.what, where=name, fix=error.fix) from error
        try:
            os.rename(own, folder)
        except OSError:
            shutil.rmtree(own)
    return folder


def _proteins(folder: Path, _sequence: int) -> None:
    """Chains whose next residue depends on the last: there is something to learn."""
    from trainwright.train.data.prepare import prepare

    dice = random.Random(0)
    likely = {residue: dice.choices(RESIDUES, k=3) for residue in RESIDUES}
    source = folder / "proteins.fasta"
    with source.open("w") as out:
        for number in range(2000):
            chain = [dice.choice(RESIDUES)]
            for _ in range(dice.randint(40, 400)):
                chain.append(dice.choice(likely[chain[-1]] if dice.random() < 0.8 else RESIDUES))
            out.write(f">chain{number}\n{''.join(chain)}\n")
    prepare([str(source)], folder, tokenizer="esm2", workers=1, quiet=True)
    source.unlink()


def _chats(folder: Path, sequence: int) -> None:
    from trainwright.train.data.chat import prepare_chats

    _prepared(folder, sequence, ({"messages": _chat(name, text)} for name, text in docstrings()), prepare_chats)


def _pairs(folder: Path, sequence: int) -> None:
    """The docstring of the function against that of the one before it."""
    from trainwright.train.data.chat import prepare_pairs

    known = list(docstrings())
    both = zip(known[1:], known, strict=False)
    rows: Iterator[dict[str, object]] = (
        {"chosen": _chat(name, text), "rejected": _chat(name, other)} for (name, text), (_, other) in both
    )
    _prepared(folder, sequence, rows, prepare_pairs)


def _prepared(folder: Path, sequence: int, rows: Iterator[dict[str, object]], prepare: Callable[..., object]) -> None:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    prepare([str(source)], folder, "bytes", sequence, quiet=True)
    source.unlink()


def _chat(name: str, text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"What does {name} do?"}, {"role": "assistant", "content": text}]


def docstrings(most: int = 2000) -> Iterator[tuple[str, str]]:
    """(function, first line of its docstring) of the standard library."""
    root, count = Path(sysconfig.get_path("stdlib")), 0
    for path in sorted(root.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if text and isinstance(node, ast.FunctionDef):
                yield f"{path.stem}.{node.name}", text.partition("\n")[0]
                count += 1
                if count == most:
                    return


MAKERS: dict[str, Callable[[Path, int], None]] = {PROTEINS: _proteins, CHATS: _chats, PAIRS: _pairs}
