"""What our programs for other frameworks share: their options, data that is present on any machine, and which samples a
rank sees. Standard library only. It lies beside the program on every node, as `run.py` (the helper) does."""

from __future__ import annotations

import argparse
import ast
import bisect
import gzip
import itertools
import json
import math
import mmap
import os
import random
import shutil
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import run

BUILTIN = "builtin:"
DEBUG = "-debug"  # a model name that ends so has random weights and a size for a laptop
MANIFEST = "manifest.json"  # of token shards that `trainwright data prepare` made
TYPES = {"uint16": "H", "uint32": "I"}
ROWS = (".jsonl", ".jsonl.gz", ".json.gz")
LARGEST = 2 << 30  # bytes of rows: every rank reads them all, and holds them in memory
SHUFFLED = 1_000_000  # samples of an epoch whose order is a list
RESIDUES = "LAGVSERTIDPKQNFYMHWC"


def options(what: str) -> argparse.ArgumentParser:
    """The options every entry has."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--model", required=True, help="name or folder of a model; NAME-debug: tiny, random weights")
    parser.add_argument("--data", default="", help="a folder of token shards, or of .jsonl files; default: built-in")
    parser.add_argument("--steps", type=int, required=True, help="optimizer steps")
    parser.add_argument("--sequence", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, required=True, help="sequences per step, of all ranks together")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences a rank handles at once")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32", help="of the matrix products")
    parser.add_argument("--recompute", choices=("none", "full"), default="none", help="activation checkpointing")
    parser.add_argument("--lr", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=0, help="warm-up steps")
    parser.add_argument("--schedule", choices=("cosine", "linear", "constant"), default="cosine")
    parser.add_argument("--final", type=float, default=0.1, help="learning rate at the end, as a share of the peak")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--beta1", type=float, default=0.9, help="decay rate of AdamW's first moment")
    parser.add_argument("--beta2", type=float, default=0.95, help="decay rate of AdamW's second moment")
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    parser.add_argument("--checkpoint", type=Path, default=None, help="folder of the checkpoints")
    parser.add_argument("--checkpoint-steps", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints to keep")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of this process, checked; adds `accumulate`, the micro batches per step."""
    given = parser.parse_args()
    if given.warmup >= given.steps:
        parser.error(f"--warmup {given.warmup} is not shorter than the run of {given.steps} steps")
    together = given.micro_batch * run.place().world_size
    if given.batch % together:
        parser.error(f"--batch {given.batch} is not a multiple of {together}: micro batch times ranks")
    given.accumulate = given.batch // together
    given.checkpoint = given.checkpoint or run.checkpoint_folder()
    given.checkpoint.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if given.model.endswith(DEBUG):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return given


def learning_rate(step: int, given: argparse.Namespace) -> float:
    """The rate of a step, counted from 1: a linear warm-up, then down to its share of the peak at the last step."""
    if step <= given.warmup:
        return float(given.lr * step / given.warmup)
    done = min(1.0, (step - given.warmup) / max(1, given.steps - given.warmup))
    above = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[given.schedule]
    return float(given.lr * (given.final + (1 - given.final) * above))


def is_builtin(data: str) -> bool:
    return not data or data.startswith(BUILTIN)


def rows(data: str, builtin: str) -> list[dict[str, object]]:
    """The rows of a .jsonl file, of all such files in a folder, or of a built-in data set: text, chats, proteins."""
    if not is_builtin(data):
        path = Path(data)
        files = sorted(file for file in path.rglob("*") if file.name.endswith(ROWS)) if path.is_dir() else [path]
        if not files:
            raise SystemExit(f"{data} holds no file that ends in {', '.join(ROWS)}")
        size = sum(file.stat().st_size for file in files)
        if size > LARGEST:
            raise SystemExit(
                f"{data} holds {size / 1e9:.0f} GB of rows, which every rank would read whole\n"
                f"  fix: of text, `trainwright data prepare {data} -o FOLDER --tokenizer FILE`, then --data FOLDER"
            )
        return [json.loads(line) for file in files for line in _lines(file)]
    name = data.removeprefix(BUILTIN) or builtin
    if name not in MAKERS:
        raise SystemExit(f"no built-in data {data!r}; there are: {', '.join(MAKERS)}")
    return list(MAKERS[name]())


def _lines(file: Path) -> Iterator[str]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as reader:
        yield from (line for line in reader if line.strip())


def is_prepared(data: str) -> bool:
    """Whether it is a folder of token shards."""
    return not is_builtin(data) and (Path(data) / MANIFEST).is_file()


class TokenShards:
    """The sequences of a prepared folder, each read from disk when it is asked for."""

    def __init__(self, folder: Path, length: int) -> None:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest.get("format") != "trainwright-tokens" or manifest.get("rows"):
            raise SystemExit(f"{folder} holds no token shards of text; `trainwright data show {folder}` says what")
        self.length, self.vocab = length, int(manifest["tokenizer"]["vocab"])
        self.shards = []
        for shard in manifest["shards"]:
            with (folder / f"{shard['name']}.bin").open("rb") as file:
                if shard["tokens"]:
                    whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self.shards.append(memoryview(whole).cast(TYPES[manifest["dtype"]]))
        self.ends = list(itertools.accumulate(len(shard) // length for shard in self.shards))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect.bisect_right(self.ends, index)
        start = (index - (self.ends[number - 1] if number else 0)) * self.length
        return {"input_ids": self.shards[number][start : start + self.length].tolist()}


def _texts() -> Iterator[dict[str, object]]:
    """Modules of the standard library, in order of their names."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]:
        yield {"text": path.read_text(encoding="utf-8")}


def _chats() -> Iterator[dict[str, object]]:
    """Questions about functions of the standard library, answered by the first line of their docstrings."""
    for row in _texts():
        for node in ast.walk(ast.parse(str(row["text"]))):
            if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                question, answer = f"What does {node.name} do?", text.partition("\n")[0]
                yield {"prompt": question, "completion": f" {answer}"}


def _proteins() -> Iterator[dict[str, object]]:
    """Chains whose next residue depends on the last one: there is something to learn."""
    dice = random.Random(0)
    likely = {residue: dice.choices(RESIDUES, k=3) for residue in RESIDUES}
    for _ in range(500):
        chain = [dice.choice(RESIDUES)]
        for _ in range(dice.randint(40, 200)):
            chain.append(dice.choice(likely[chain[-1]] if dice.random() < 0.8 else RESIDUES))
        yield {"text": "".join(chain)}


MAKERS = {"stdlib": _texts, "chats": _chats, "proteins": _proteins}


def byte_sequences(given: argparse.Namespace) -> list[bytes]:
    """Text as bytes, cut into sequences of one token more than the model sees: the targets are shifted by one."""
    text = b"\n".join(str(row["text"]).encode() for row in rows(given.data, "stdlib"))
    length = given.sequence + 1
    return [text[start : start + length] for start in range(0, len(text) - length, length)]


def saved_steps(folder: Path, ending: str = "") -> list[int]:
    """The steps of the checkpoints in a folder: `step-N` with an ending, or with a file inside that whole ones have."""
    return sorted(
        int(path.relative_to(folder).parts[0][5:].partition(".")[0]) for path in folder.glob(f"step-*{ending}")
    )


def remove_old(folder: Path, keep: int, ending: str = "") -> None:
    """Leave the newest checkpoints; one rank does this."""
    for step in saved_steps(folder, ending)[:-keep]:
        old = folder / f"step-{step}{'' if ending.startswith('/') else ending}"
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def samples_of(step: int, count: int, given: argparse.Namespace) -> list[int]:
    """The samples of this rank in a step: all ranks shuffle alike and each takes its own share, so no two ranks see
    the same sample, and the order depends on the step alone, so a resumed run goes on where it stopped."""
    here = run.place()
    per_epoch = count // given.batch
    if not per_epoch:
        raise SystemExit(f"{count} samples are fewer than one batch of {given.batch}")
    epoch, position = divmod(step - 1, per_epoch)
    places = range(position * given.batch, (position + 1) * given.batch)[here.rank :: here.world_size]
    if count > SHUFFLED:
        return [_permuted(place, count, given.seed + epoch) for place in places]
    order = _order(count, given.seed + epoch)
    return [order[place] for place in places]


def _permuted(place: int, count: int, seed: int) -> int:
    """Where a permutation of so many samples puts one, without a list of them: four rounds that mix the two halves of
    its bits, again while the result lies beyond the end."""
    half = max(1, (count.bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(4):
            left, right = right, left ^ (random.Random(f"{seed}/{turn}/{right}").getrandbits(half))
        place = left << half | right
        if place < count:
            return place


@lru_cache(maxsize=1)
def _order(count: int, seed: int) -> list[int]:
    """The samples of an epoch, shuffled."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
