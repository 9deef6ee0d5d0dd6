"""What the entry scripts share: their options, data that is present on any machine, and the batch arithmetic. Standard
library only. It travels beside the script that a rank runs, so entries import it by its plain name."""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from trainwright import run

BUILTIN = "builtin:"
DEBUG = "-debug"  # a model name that ends so has random weights and a size for a laptop
RESIDUES = "LAGVSERTIDPKQNFYMHWC"


def options(what: str) -> argparse.ArgumentParser:
    """The options every entry has."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--model", required=True, help="name or folder of a model; NAME-debug: tiny, random weights")
    parser.add_argument("--data", default="", help="a .jsonl file or a folder of them; default: built-in data")
    parser.add_argument("--steps", type=int, required=True, help="optimizer steps")
    parser.add_argument("--sequence", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, required=True, help="sequences per step, of all ranks together")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences a rank handles at once")
    parser.add_argument("--lr", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=0, help="warm-up steps")
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
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if given.model.endswith(DEBUG):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return given


def learning_rate(step: int, peak: float, warmup: int, steps: int) -> float:
    """Linear warm-up, then a cosine that reaches a tenth of the peak at the last step. Steps count from 1."""
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


def rows(data: str, builtin: str) -> list[dict[str, object]]:
    """The rows of a .jsonl file, of all such files in a folder, or of a built-in data set: text, chats, proteins."""
    if data and not data.startswith(BUILTIN):
        path = Path(data)
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise SystemExit(f"{data} holds no .jsonl file")
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines() if line]
    return list(MAKERS[data.removeprefix(BUILTIN) or builtin]())


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


MAKERS = {"text": _texts, "stdlib": _texts, "chats": _chats, "proteins": _proteins}


def byte_sequences(given: argparse.Namespace) -> list[bytes]:
    """Text as bytes, cut into sequences of one token more than the model sees: the targets are shifted by one."""
    text = b"\n".join(str(row["text"]).encode() for row in rows(given.data, "text"))
    length = given.sequence + 1
    return [text[start : start + length] for start in range(0, len(text) - length, length)]


def samples_of(step: int, count: int, given: argparse.Namespace) -> list[int]:
    """The samples of this rank in a step: all ranks shuffle alike and each takes its own share, so no two ranks see
    the same sample, and the order depends on the step alone, so a resumed run goes on where it stopped."""
    here = run.place()
    per_epoch = count // given.batch
    if not per_epoch:
        raise SystemExit(f"{count} samples are fewer than one batch of {given.batch}")
    epoch, position = divmod(step - 1, per_epoch)
    order = list(range(count))
    random.Random(given.seed + epoch).shuffle(order)
    mine = order[position * given.batch : (position + 1) * given.batch]
    return mine[here.rank :: here.world_size]
