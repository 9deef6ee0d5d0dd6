"""`python -m trainwright.train`: what each rank runs. `data …` prepares data, `export` and `import` convert weights."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

from trainwright.errors import UserError
from trainwright.train.disk import disk_full, no_space


def main(words: list[str] | None = None) -> int:
    """Run one verb; the exit status. A user error is printed without a traceback."""
    words = sys.argv[1:] if words is None else words
    # Spinning OpenMP threads make a small model ten times slower on a shared CPU. Torch reads this when imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        if words[:1] == ["data"]:
            from trainwright.train.data.cli import main as data

            return data(words[1:])
        if words[:1] == ["bench"]:
            from trainwright.train.benchmarks import main as bench

            return bench(words[1:])
        if words[:1] in (["export"], ["import"]):
            import warnings

            from trainwright.train.models.convert import export_main, import_main

            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            return (export_main if words[0] == "export" else import_main)(words[1:])
        from trainwright.train.config import parse_arguments

        config = parse_arguments(words)
        from trainwright.train.loop import train

        return train(config)
    except UserError as error:
        rank = os.environ.get("RANK", "0")
        with contextlib.suppress(OSError):  # the log may lie on the disk that is full
            print(f"{'' if rank == '0' else f'rank {rank}: '}error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, OSError) and disk_full(error):
            print(f"error: {no_space(error.filename or Path())}", file=sys.stderr)
        else:
            traceback.print_exc()
        return 1


def leave(status: int) -> None:
    """Exit; after a failure at once, because other ranks may never answer a clean shutdown."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # a closed pipe; Python would fail on it once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    if status and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    leave(main())
