"""Runs `data preload`, `release` and `stage`, alone or as one process per node, and says what was done."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.data import hsm
from trainwright.train.data.progress import si
from trainwright.train.data.staging import OneNode, Stage, Staged, open_source
from trainwright.train.disk import disk_full, no_space


def move(args: argparse.Namespace) -> int:
    """One verb; 0 when every file is as asked for. A full disk or a folder in the way is said without a traceback."""
    try:
        return _move(args)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = str(error.filename2 or error.filename or getattr(args, "output", None) or args.folder)
        fix = "free space or change permissions; the same command continues"
        if disk_full(error):
            raise no_space(where, fix=fix) from error
        raise UserError(f"{args.verb} stopped: {error.strerror or error}", where=where, fix=fix) from error


def _move(args: argparse.Namespace) -> int:
    if args.verb == "stage":
        apart(args.folder, args.output)
        staged = stage(args.folder, args.output, args.workers)
        text = f"staged {staged.files:,} files, {si(staged.bytes)}B, all verified; {si(staged.copied)}B were missing"
        say(args, dataclasses.asdict(staged), f"{text}, {si(staged.read)}B read from the source by this node")
        return 0
    folder = Path(args.folder)
    if args.verb == "preload":
        if args.stripes is not None:
            hsm.set_stripes(folder, args.stripes)
        moved = hsm.preload(folder, args.workers, hsm.read_checksums(args.checksums))
    else:
        moved = hsm.release(folder, args.workers)
    done = f"{args.verb}: {moved.files - len(moved.problems):,} of {moved.files:,} files, {si(moved.bytes)}B"
    problems = [f"{name}: {why}" for name, why in moved.problems.items()]
    say(args, dataclasses.asdict(moved), "\n".join([done, *problems]))
    return 1 if problems else 0


def apart(source: str, target: Path) -> None:
    """A copy inside its source would be copied again by the next run."""
    if not source.startswith("s3://") and target.resolve().is_relative_to(Path(source).resolve()):
        raise UserError("the target lies in the source", where=str(target), fix="give a folder elsewhere")


def stage(source: str, target: Path, workers: int) -> Staged:
    """Alone, or with the other nodes where a launcher started one process on each."""
    from trainwright.train.world import read_environment

    os.environ.update(read_environment(os.environ))
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Stage(open_source(source), target, OneNode(), workers).run()
    import torch.distributed as dist

    from trainwright.train.data.staging import Cluster

    dist.init_process_group("gloo")
    try:
        return Stage(open_source(source), target, Cluster(), workers).run(quiet=dist.get_rank() > 0)
    finally:
        dist.destroy_process_group()


def say(args: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if args.json else text)
