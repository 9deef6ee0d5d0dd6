"""`bench storage`: reads and writes of a folder or an S3 prefix: sequential, random, many small files, metadata, cold
and warm, several clients at once; beside the rate that was paid for."""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.bench.machine import result_header
from trainwright.bench.results import parse_size, positive, whole_number, write_result
from trainwright.errors import UserError

BLOCK = 4 << 20  # of sequential transfers
SMALL = 100 << 10  # a small file: an encoded image
RANDOM = 4 << 10
Action = Callable[[int], int]  # client -> bytes (or files) it handled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("where", help="a folder, or s3://bucket/prefix")
    add("--size", default="256M", metavar="SIZE", help="of each client's large file (default: 256M)")
    add("--files", type=whole_number, default=200, metavar="N", help="small files per client (default: 200)")
    add("--clients", type=whole_number, default=4, metavar="N", help="at once, beside one alone (default: 4)")
    add("--paid", type=positive, default=0.0, metavar="MB/S", help="throughput the file system was bought with")
    add("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace, words: list[str]) -> int:
    size = parse_size(args.size)
    if args.where.startswith("s3://"):
        raise UserError(
            "a node measures S3 through the trainer's client", fix="python -m trainwright.train bench storage"
        )
    root = Path(args.where)
    if not root.is_dir():
        raise UserError("no such folder", where=args.where, fix="give a folder on the file system to measure")
    folder = root / f"bench-storage-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        rows = measure(FolderTarget(folder), size, args.files, args.clients)
    except OSError as error:
        fix = "it must be writable and have room: `--size`, `--files`, `--clients`"
        raise UserError(f"cannot measure: {error.strerror}", where=args.where, fix=fix) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report(args, rows, file_system(root))


def report(args: argparse.Namespace, rows: list[dict[str, Any]], kind: str) -> int:
    """Print and write. 1 where less than 80 % of what was paid for is reached."""
    result = {**result_header("storage"), "where": args.where, "file_system": kind, "paid_mb_s": args.paid or None}
    best = max(
        (row["mb_s"] for row in rows if row["name"] in ("sequential write", "sequential read, cold")), default=0.0
    )
    result |= {"rows": rows, "best_mb_s": best, "status": "skip"}
    if args.paid:
        result["status"] = "pass" if best >= 0.8 * args.paid else "fail"
    write_result(result, args.output)
    print(json.dumps(result) if args.json else text(result))
    return 1 if result["status"] == "fail" else 0


def text(result: dict[str, Any]) -> str:
    lines = [f"{result['where']} ({result['file_system']})"]
    lines.append(f"{'measurement':<34} {'clients':>7} {'MB/s':>10} {'per second':>12}")
    for row in result["rows"]:
        mb_s = f"{row['mb_s']:,.1f}" if row["mb_s"] else "-"
        lines.append(f"{row['name']:<34} {row['clients']:>7} {mb_s:>10} {row['per_s']:>12,.0f}")
    if result["paid_mb_s"]:
        share = result["best_mb_s"] / result["paid_mb_s"]
        lines.append(
            f"{result['status'].upper()}: {share:.0%} of the {result['paid_mb_s']:,.0f} MB/s paid for (80 % asked)"
        )
    return "\n".join(lines)


class FolderTarget:
    """A folder of a mounted file system. Cold reads drop this file's pages first, so the disk or the server answers."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, content: bytes, times: int = 1) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as out:
            for _ in range(times):
                out.write(content)
            os.fsync(out.fileno())

    def read(self, name: str) -> Iterator[int]:
        with (self.root / name).open("rb", buffering=0) as handle:
            block = mmap.mmap(-1, BLOCK)
            while count := handle.readinto(block):
                yield count

    def read_at(self, name: str, places: list[int], size: int) -> int:
        handle = os.open(self.root / name, os.O_RDONLY)
        try:
            return sum(len(os.pread(handle, size, place)) for place in places)
        finally:
            os.close(handle)

    def drop(self, name: str) -> None:
        handle = os.open(self.root / name, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)

    def names(self, under: str) -> int:
        """List and stat: what a loader does when it starts."""
        with os.scandir(self.root / under) as entries:
            return sum(1 for entry in entries if entry.stat().st_size >= 0)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


@dataclass(frozen=True, slots=True)
class Plan:
    """What each measurement does, by client."""

    target: Any
    size: int
    files: int

    def large(self, client: int) -> str:
        return f"large-{client}"

    def small(self, client: int) -> list[str]:
        return [f"small-{client}/{number:05}" for number in range(self.files)]

    def write_large(self, client: int) -> int:
        times = max(1, self.size // BLOCK)
        self.target.write(self.large(client), os.urandom(BLOCK), times)
        return times * BLOCK

    def read_large(self, client: int) -> int:
        return sum(self.target.read(self.large(client)))

    def read_random(self, client: int) -> int:
        dice = random.Random(client)
        length = max(1, self.size // BLOCK) * BLOCK
        places = [dice.randrange(0, length - RANDOM, RANDOM) for _ in range(self.files * 4)]
        return self.target.read_at(self.large(client), places, RANDOM)

    def write_small(self, client: int) -> int:
        content = os.urandom(SMALL)
        for name in self.small(client):
            self.target.write(name, content)
        return SMALL * self.files

    def read_small(self, client: int) -> int:
        names = self.small(client)
        random.Random(client).shuffle(names)
        return sum(sum(self.target.read(name)) for name in names)

    def list_small(self, client: int) -> int:
        self.target.names(f"small-{client}")
        return 0

    def remove_small(self, client: int) -> int:
        for name in self.small(client):
            self.target.remove(name)
        return 0

    def drop(self, clients: int) -> None:
        for client in range(clients):
            for name in (self.large(client), *self.small(client)):
                self.target.drop(name)


def measure(target: Any, size: int, files: int, clients: int) -> list[dict[str, Any]]:
    """Everything with one client and with several. Cold first, then warm: the first epoch and the later ones."""
    plan, rows = Plan(target, size, files), []
    blocks = max(1, size // BLOCK)
    for count in dict.fromkeys((1, clients)):
        rows.append(_timed("sequential write", plan.write_large, count, blocks))
        rows.append(_timed("small files write", plan.write_small, count, files))
        plan.drop(count)
        rows.append(_timed("sequential read, cold", plan.read_large, count, blocks))
        rows.append(_timed("small files read, first epoch", plan.read_small, count, files))
        rows.append(_timed("sequential read, warm", plan.read_large, count, blocks))
        rows.append(_timed("small files read, later epoch", plan.read_small, count, files))
        plan.drop(count)
        rows.append(_timed("random 4 KiB read, cold", plan.read_random, count, files * 4))
        rows.append(_timed("list and stat", plan.list_small, count, files))
        rows.append(_timed("remove", plan.remove_small, count, files))
    return rows


def _timed(name: str, act: Action, clients: int, operations: int) -> dict[str, Any]:
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        moved = sum(pool.map(act, range(clients)))
    seconds = time.perf_counter() - began
    return {
        "name": name, "clients": clients, "seconds": seconds, "mb_s": moved / seconds / 1e6 or None,
        "per_s": operations * clients / seconds,
    }  # fmt: skip


def file_system(path: Path) -> str:
    """The type of the file system a path lies on, as the kernel names it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, name, *_ = line.split()
        if (str(path.resolve()) + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, kind = mount, name
    return kind
