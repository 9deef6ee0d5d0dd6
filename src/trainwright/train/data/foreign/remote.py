"""Data that other tools prepared and left in S3: copied to the node's cache as `data stage` does, once per node, and
read from there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from trainwright.train.data.s3 import Bucket
from trainwright.train.data.staging import Item, OneNode, Stage

COMPLETE = ".complete"


class Objects:
    """Some objects of a bucket, as a source to stage."""

    def __init__(self, bucket: Bucket, items: list[Item]) -> None:
        self.bucket, self.chosen = bucket, items

    def items(self) -> list[Item]:
        return self.chosen

    def read(self, name: str, start: int, end: int) -> bytes:
        return self.bucket.read(name, start, end) if end > start else b""


def stage_foreign(uri: str, cache: Path) -> Path | None:
    """The local copy of the data set at that address; None where there is none.

    The folder's name follows from the names, sizes and ETags of the objects: other content is another folder."""
    source, name = _objects(uri)
    if not source.chosen:
        return None
    listing = json.dumps([source.bucket.uri, *(asdict(item) for item in source.chosen)])
    folder = cache / f"foreign-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks: then ranks copy beside each other
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / COMPLETE).exists():
            Stage(source, folder, OneNode()).run()
            (folder / COMPLETE).touch()
    return folder / name


def _objects(uri: str) -> tuple[Objects, str]:
    """The objects of a folder; or, for Megatron's prefix, the two files beside each other, and the prefix's name."""
    folder = Bucket(uri)
    items = _items(folder)
    if items:
        known = any(item.name == "index.json" or re.fullmatch(r"[^/]+\.arrow", item.name) for item in items)
        return Objects(folder, items if known else []), ""  # anything else is not copied
    above, _, name = uri.rstrip("/").rpartition("/")
    name = name.removesuffix(".idx").removesuffix(".bin")
    if above.count("/") < 2 or not name:
        return Objects(folder, []), ""
    beside = Bucket(above)
    pair = [item for item in _items(beside, name) if item.name in (f"{name}.idx", f"{name}.bin")]
    return Objects(beside, pair), name


def _items(bucket: Bucket, under: str = "") -> list[Item]:
    listed = sorted(bucket.objects(under))
    return [Item(name, size, tag) for name, size, tag in listed if name and not name.endswith("/")]
