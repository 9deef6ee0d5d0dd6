"""`bench storage s3://…`: the same measurements as of a folder, through the trainer's own S3 client."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Iterator

from trainwright.bench.results import parse_size
from trainwright.bench.storage import BLOCK, add_arguments, measure, report
from trainwright.bench.storage import run as run_folder
from trainwright.train.data.s3 import Bucket

__all__ = ["add_arguments", "run"]


class BucketTarget:
    """Objects under a prefix. S3 keeps no pages here, so cold and warm are both the server's answer."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def write(self, name: str, content: bytes, times: int = 1) -> None:
        self.bucket.write(name, content * times)

    def read(self, name: str) -> Iterator[int]:
        size = self.bucket.size(name) or 0
        for start in range(0, size, BLOCK):
            yield len(self.bucket.read(name, start, min(size, start + BLOCK)))

    def read_at(self, name: str, places: list[int], size: int) -> int:
        return sum(len(self.bucket.read(name, place, place + size)) for place in places)

    def drop(self, name: str) -> None:
        """Nothing to drop."""

    def names(self, under: str) -> int:
        return sum(1 for _ in self.bucket.sizes(under + "/"))

    def remove(self, name: str) -> None:
        self.bucket.delete(name)


def run(args: argparse.Namespace) -> int:
    if not args.where.startswith("s3://"):
        return run_folder(args, [])
    bucket = Bucket(f"{args.where.rstrip('/')}/bench-storage-{uuid.uuid4().hex[:8]}")
    try:
        return report(args, measure(BucketTarget(bucket), parse_size(args.size), args.files, args.clients), "s3")
    finally:
        for name in list(bucket.names()):
            bucket.delete(name)
