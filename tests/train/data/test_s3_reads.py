"""S3 against a real server: signatures, ranges, parts, listings, and token shards behind the block cache."""

import errno
import hashlib
import os
import sys

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.data import cache as cache_module
from trainwright.train.data import s3 as s3_module
from trainwright.train.data.loader import Loader, Options
from trainwright.train.data.named import open_samples
from trainwright.train.data.prepare import prepare
from trainwright.train.data.s3 import Bucket
from trainwright.train.data.source import Folder


def upload_folder(folder, uri):
    bucket = Bucket(uri)
    for path in sorted(folder.iterdir()):
        bucket.upload(path.name, path)
    return bucket


def test_objects_round_trip_whole_and_in_ranges(s3):
    bucket = Bucket(s3)
    content = os.urandom(100_000)
    bucket.write("a folder/näme+1=&.bin", content)
    assert bucket.read("a folder/näme+1=&.bin") == content
    assert bucket.read("a folder/näme+1=&.bin", 10, 20) == content[10:20]
    assert bucket.size("a folder/näme+1=&.bin") == 100_000
    assert bucket.size("absent") is None
    with pytest.raises(FileNotFoundError):
        bucket.read("absent")
    bucket.write("b", b"")
    assert sorted(bucket.names()) == ["a folder/näme+1=&.bin", "b"]
    bucket.delete("b")
    assert list(bucket.names()) == ["a folder/näme+1=&.bin"]


def test_large_files_go_in_parts(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(s3_module, "PART", 5 << 20)
    path = tmp_path / "large"
    path.write_bytes(os.urandom((12 << 20) + 345))
    bucket = Bucket(s3)
    bucket.upload("large", path)
    assert bucket.size("large") == path.stat().st_size
    assert hashlib.sha256(bucket.read("large")).digest() == hashlib.sha256(path.read_bytes()).digest()


def test_an_error_that_s3_tells_after_a_good_status_is_one(s3, tmp_path, monkeypatch):
    """CompleteMultipartUpload may answer 200 and say in its body that it failed."""
    monkeypatch.setattr(s3_module, "PART", 5 << 20)
    path = tmp_path / "large"
    path.write_bytes(bytes(6 << 20))
    true = Bucket._once

    def late(self, method, where, query, body, headers):
        if method == "POST" and "uploadId" in query:
            return 200, {}, b"<Error><Code>InternalError</Code><Message>try again</Message></Error>"
        return true(self, method, where, query, body, headers)

    monkeypatch.setattr(Bucket, "_once", late)
    with pytest.raises(UserError, match="InternalError try again"):
        Bucket(s3).upload("large", path)


def test_a_wrong_secret_is_refused_with_a_fix(s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(UserError, match="403 SignatureDoesNotMatch") as caught:
        Bucket(s3).read("x")
    assert "role" in caught.value.fix


@pytest.mark.parametrize("reader", ["s3torchconnector", "standard library"])
def test_shards_in_s3_give_what_a_folder_gives(s3, tmp_path, monkeypatch, reader):
    if reader == "standard library":
        monkeypatch.setitem(sys.modules, "s3torchconnector", None)
    else:
        pytest.importorskip("s3torchconnector")
    monkeypatch.setattr(cache_module, "BLOCK", 1 << 16)
    prepare(["builtin:stdlib"], tmp_path / "data", shard_bytes=4 << 20, workers=1, quiet=True)
    upload_folder(tmp_path / "data", s3)
    options = Options(sequence=512, seed=1)
    local = Loader(open_samples([str(tmp_path / "data")], options), 16, 8)
    remote = Loader(open_samples([s3], options, cache=tmp_path / "cache"), 16, 8)
    for seen in range(0, 64, 16):
        mine, theirs = local.step(seen), remote.step(seen)
        assert mine.samples == theirs.samples
        for a, b in zip(mine.microbatches, theirs.microbatches, strict=True):
            assert torch.equal(a.tokens, b.tokens)
            assert torch.equal(a.documents, b.documents)
    fetched = sum(sum(b.have[:]) for b in remote.samples.sources[0].files._blocks.values())
    assert 0 < fetched < 11_000_000 * 2 / (1 << 16) / 2  # blocks touched, not the whole data set

    # A second process on the node finds the blocks there and asks S3 for none of them.
    again = Loader(open_samples([s3], options, cache=tmp_path / "cache"), 16, 8)

    def refuse(start, end):
        raise AssertionError("a cached block was fetched again")

    files = again.samples.sources[0].files
    for shard in files.manifest.shards:
        files._blocked(shard).read = refuse
    assert torch.equal(again.step(0).microbatches[0].tokens, local.step(0).microbatches[0].tokens)


def test_a_short_object_names_both_sizes(s3, tmp_path):
    prepare(["builtin:stdlib"], tmp_path / "data", workers=1, quiet=True)
    bucket = upload_folder(tmp_path / "data", s3)
    size = Folder(tmp_path / "data").manifest.data_bytes(Folder(tmp_path / "data").manifest.shards[0])
    bucket.write("shard-00000.bin", b"short")
    with pytest.raises(UserError, match=f"5 bytes, the manifest says {size:,} bytes"):
        open_samples([s3], Options(sequence=64), cache=tmp_path / "cache")
    bucket.upload("shard-00000.bin", tmp_path / "data" / "shard-00000.bin")
    bucket.delete("shard-00000.idx")
    with pytest.raises(UserError, match="shard is missing") as caught:
        open_samples([s3], Options(sequence=64), cache=tmp_path / "cache")
    assert caught.value.where.endswith("shard-00000.idx")
    with pytest.raises(UserError, match=r"no manifest\.json"):
        open_samples([s3 + "/elsewhere"], Options(sequence=64), cache=tmp_path / "cache")


def test_a_block_is_marked_only_when_it_is_on_the_disk(tmp_path, monkeypatch):
    """What a power cut or a full disk left half written must be fetched again."""
    monkeypatch.setattr(cache_module, "BLOCK", 4096)
    content = os.urandom(10_000)
    made = cache_module.Blocks(tmp_path / "shard.bin", len(content), lambda start, end: content[start:end])

    def cut(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", cut)
        with pytest.raises(UserError, match="cannot write a cache block of 4,096 bytes: No space left"):
            made.need(0, 5000)
    assert bytes(made.have) == b"\0\0\0"
    made.need(0, 5000)
    assert bytes(made.have) == b"\1\1\0"
    assert made.data[:8192] == content[:8192]
