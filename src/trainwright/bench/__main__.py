"""`python -m trainwright.bench`: measurements on a node that has Python and torch, and nothing else of this package."""

from __future__ import annotations

import argparse
import os
import sys

from trainwright.errors import UserError

VERBS = {
    "collectives": "collectives over torch.distributed: bandwidth, correctness, the slow node or link",
    "device": "matmul by shape and precision, memory, host to device, peer to peer, beside the data sheet",
    "storage": "sequential, random and many-small-files reads and writes, metadata, cold and warm, several clients",
}


def parser() -> argparse.ArgumentParser:
    """The words of `bench`; each measurement adds its own."""
    import importlib

    top = argparse.ArgumentParser(
        prog="trainwright bench", description="Measure what a machine does, before a long run depends on it."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="WHAT")
    for name, text in VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        importlib.import_module(f"trainwright.bench.{name}").add_arguments(verb)
    return top


def main(words: list[str] | None = None) -> int:
    """Run one measurement; the exit status."""
    import importlib

    words = sys.argv[1:] if words is None else words
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        args = parser().parse_args(words)
        return importlib.import_module(f"trainwright.bench.{args.verb}").run(args, words)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
