"""Prints the table of trainer options that `check` ships (src/trainwright/check/data/options.csv), from a list of their
argument parsers with the columns framework, version_or_commit, option, type and notes.

    python tools/framework_options.py flags.csv > src/trainwright/check/data/options.csv
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

SHIPPED = {
    "torchrun": "torchrun", "accelerate launch": "accelerate", "deepspeed (launcher)": "deepspeed",
    "Megatron-LM": "Megatron-LM", "Megatron-DeepSpeed": "Megatron-DeepSpeed", "torchtitan": "torchtitan",
    "HF TrainingArguments": "TrainingArguments",
}  # fmt: skip


def names(row: dict[str, str]) -> list[str]:
    """An option and its aliases; `!` marks one that takes no value."""
    aliases = re.search(r"aliases=([^;]+)", row["notes"])
    pair = re.search(r"pair (--[\w-]+)", row["notes"])
    written = [row["option"], *(re.split(r"[, |]+", aliases[1]) if aliases else []), *([pair[1]] if pair else [])]
    alone = "!" if row["type"] == "flag" else ""
    return [name + alone for name in written if name.startswith("-")]


def version_of(text: str) -> str:
    return text.removeprefix("core_v").removeprefix("transformers ").split("@")[0]


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["framework"] in SHIPPED]
    print("# source: the argument parsers of these trainers, read on 2026-11")
    print("# date: 2026-11-15")
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(("framework", "versions", "options"))
    for framework, name in SHIPPED.items():
        own = [row for row in rows if row["framework"] == framework]
        versions = " ".join(dict.fromkeys(version_of(row["version_or_commit"]) for row in own))
        out.writerow((name, versions, " ".join(sorted({option for row in own for option in names(row)}))))
