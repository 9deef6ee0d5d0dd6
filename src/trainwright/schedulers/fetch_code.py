"""Fetches the code of a run on a node, before the ranks start. The text of this file is a word of the job's command, so
it needs Python's standard library and nothing else, in any image."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

TRIES = 6  # with growing pauses, 31 s in all


def main(kept: Path, folder: str, expected: str, download: Callable[[], bytes]) -> None:
    """Unpack the archive into a folder. It is kept with the run: a later start needs S3 no more."""
    archive = kept.read_bytes() if kept.is_file() else b""
    if hashlib.sha256(archive).hexdigest() != expected:
        archive = downloaded(download)
        if hashlib.sha256(archive).hexdigest() != expected:
            sys.exit("trainwright: the code that was fetched is not the code that was submitted: its checksum differs")
        keep(kept, archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacking:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        unpacking.extractall(folder, **safe)  # type: ignore[arg-type]


def downloaded(download: Callable[[], bytes]) -> bytes:
    for attempt in range(TRIES):
        try:
            return download()
        except OSError as error:  # its words do not hold the address, which is a secret
            words, status = str(error), getattr(error, "code", 0)
            if (400 <= status < 500 and status != 429) or isinstance(error, FileNotFoundError):
                break
            if attempt < TRIES - 1:
                time.sleep(2**attempt)
    sys.exit(
        f"trainwright: cannot fetch the code of this run: {words}. A presigned address is valid for 7 days, but no "
        "longer than the credentials that signed it"
    )


def keep(kept: Path, archive: bytes) -> None:
    """All nodes may do this at once, each under a name of its own."""
    own = kept.with_name(f"{kept.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(archive)
        os.replace(own, kept)
    except OSError as error:
        print(f"trainwright: the code is not kept for later starts: {error}", file=sys.stderr)


def from_address() -> bytes:
    """By the presigned address, which the job has as a secret."""
    with urllib.request.urlopen(os.environ["TRAINWRIGHT_CODE_URL"], timeout=60) as answer:
        content: bytes = answer.read()
    return content


def by_role(kept: str, folder: str, uri: str) -> None:
    """From S3, signed with the role that the container has."""
    from trainwright.errors import UserError
    from trainwright.train.data.s3 import Bucket

    place, _, name = uri.rpartition("/")
    try:
        main(Path(kept), folder, os.environ["TRAINWRIGHT_CODE_SHA256"], lambda: Bucket(place).read(name))
    except UserError as error:
        sys.exit(f"trainwright: cannot fetch the code of this run: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], os.environ["TRAINWRIGHT_CODE_SHA256"], from_address)
