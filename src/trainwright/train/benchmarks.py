"""`python -m trainwright.train bench`: measurements of the trainer's own parts: loaders, storage, checkpoints."""

from __future__ import annotations

import argparse
import importlib

PARTS = {
    "loader": ("trainwright.train.data.loader_bench", "images or tokens per second by setting, and the best one"),
    "storage": ("trainwright.train.data.storage_bench", "reads and writes of a folder or of s3://bucket/prefix"),
    "checkpoint": ("trainwright.train.checkpoint.bench", "save stall, save time and load time by size and method"),
}  # fmt: skip


def main(words: list[str]) -> int:
    """Run one of them; the exit status."""
    top = argparse.ArgumentParser(prog="trainwright bench", description="Measure the trainer's own parts.")
    verbs = top.add_subparsers(dest="part", required=True, metavar="WHAT")
    for name, (module, text) in PARTS.items():
        importlib.import_module(module).add_arguments(verbs.add_parser(name, help=text, description=text))
    args = top.parse_args(words)
    return importlib.import_module(PARTS[args.part][0]).run(args)
