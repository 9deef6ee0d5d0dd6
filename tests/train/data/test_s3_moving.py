"""Staging from S3 and measuring it, against a real S3 server."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from trainwright.train.data.s3 import Bucket
from trainwright.train.data.staging import CHUNK, OneNode, Stage, open_source


def test_staging_from_a_bucket_continues_after_an_interruption(s3: str, tmp_path: Path) -> None:
    bucket, contents = Bucket(s3), {"a/large": random.Random(1).randbytes(2 * CHUNK + 9), "b": b"small", "empty": b""}
    for name, content in contents.items():
        bucket.write(name, content)
    stage = Stage(open_source(s3), tmp_path / "nvme", OneNode())
    read, stage.source.read = stage.source.read, interrupted_after(stage.source.read, 2)
    try:
        stage.run(quiet=True)
    except KeyboardInterrupt:
        stage.source.read = read
    staged = Stage(open_source(s3), tmp_path / "nvme", OneNode()).run(quiet=True)
    assert staged.files == 3
    assert staged.read < sum(map(len, contents.values()))  # what had arrived is not fetched again
    for name, content in contents.items():
        assert (tmp_path / "nvme" / name).read_bytes() == content


def test_an_object_that_changed_without_changing_its_size_is_staged_again(s3: str, tmp_path: Path) -> None:
    for content in (b"first", b"later"):
        Bucket(s3).write("a", content)
        Stage(open_source(s3), tmp_path / "nvme", OneNode()).run(quiet=True)
        assert (tmp_path / "nvme/a").read_bytes() == content


def interrupted_after(read, times: int):
    left = iter(range(times))

    def once(*args):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return read(*args)

    return once


def test_storage_of_a_bucket_is_measured_and_left_clean(s3: str) -> None:
    words = ["storage", s3, "--size", "4M", "--files", "3", "--clients", "2", "--json"]
    command = [sys.executable, "-m", "trainwright.train", "bench", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["file_system"] == "s3"
    assert all(row["per_s"] > 0 for row in result["rows"])
    assert list(Bucket(s3).names()) == []
