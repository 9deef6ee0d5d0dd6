"""Trains with torchtitan on a sample that needs no network: a tokenizer and text made of Python's own sources, in the
places that its configuration names. Then torchtitan.train runs as it always does.

    python3 torchtitan_sample.py FOLDER --job.config_file torchtitan.toml …"""

from __future__ import annotations

import json
import os
import runpy
import sys
import sysconfig
import time
from pathlib import Path

FILES = 200
LONGEST = 20_000  # characters of a file


def texts() -> list[str]:
    """Sources of the standard library, the same on every rank."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:FILES]
    return [path.read_text(encoding="utf-8", errors="ignore")[:LONGEST] for path in sources]


def write_sample(folder: Path) -> None:
    """tokenizer/tokenizer.json and c4_test/data.json; the folder appears when both are whole."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    started = folder.with_name(f"{folder.name}-{os.getpid()}")
    for name in ("tokenizer", "c4_test"):
        (started / name).mkdir(parents=True)
    sample = texts()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sample[:40], trainer)
    tokenizer.save(str(started / "tokenizer" / "tokenizer.json"))
    names = dict(zip(("bos_token", "eos_token"), special, strict=True))
    (started / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({**names, "add_bos_token": True}))
    lines = (json.dumps({"text": text}) for text in sample)
    (started / "c4_test" / "data.json").write_text("\n".join(lines) + "\n")
    started.rename(folder)


def main() -> None:
    folder = Path(sys.argv[1])
    if os.environ.get("RANK", "0") == "0" and not folder.exists():
        write_sample(folder)
    while not folder.exists():
        time.sleep(0.2)
    sys.argv = ["torchtitan.train", *sys.argv[2:]]
    runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
