"""Data that others prepared: the files were written by their own writers, and `expected.json` by their own readers
(foreign/make.py). Same documents, same order, same resume as our own shards."""

import bz2
import gzip
import io
import json
import shutil
import struct
import tarfile
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import zstandard
from single import interrupt_at, run, same, settings, weights

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED
from trainwright.train.data.cli import main as data
from trainwright.train.data.format import write_durably
from trainwright.train.data.image_samples import open_images
from trainwright.train.data.loader import Loader, Options, SampleId
from trainwright.train.data.named import open_samples
from trainwright.train.data.prepare import prepare
from trainwright.train.data.s3 import Bucket
from trainwright.train.data.source import open_files

HERE = Path(__file__).with_name("foreign")
EXPECTED = json.loads((HERE / "expected.json").read_text())
TEXTS = {"megatron": "megatron/text", "arrow": "arrow", **{n: n for n in EXPECTED if n.startswith("mds")}}


def documents(name: str) -> list[list[int]]:
    """All documents, read through the interface that the loader reads through."""
    files = open_files(str(HERE / name), vocab=1000)
    texts = []
    for shard in files.manifest.shards:
        tokens, starts = files.tokens(shard), files.index(shard)
        every = (tokens[0 : shard.tokens].long() & 0xFFFF).tolist()
        texts += [every[a:b] for a, b in pairwise(starts)]
    return texts


@pytest.mark.parametrize("name", TEXTS)
def test_documents_are_those_of_its_own_reader(name):
    assert documents(TEXTS[name]) == EXPECTED[name]


@pytest.mark.parametrize("name", TEXTS)
def test_samples_are_cut_from_the_stream_of_documents(name):
    """Any span, across rows and shards; and no target reaches into the next document."""
    stream = [token for document in EXPECTED[name] for token in document]
    ends, total = set(), 0
    for document in EXPECTED[name]:
        total += len(document)
        ends.add(total - 1)
    samples = open_samples([str(HERE / TEXTS[name])], Options(sequence=7, shuffle=False), vocab=1000)
    for sample in range(samples.epoch_samples):
        batch = samples.batch([SampleId(0, 0, sample)])
        begin = 7 * sample
        assert batch.tokens[0].tolist() == stream[begin : begin + 7]
        wanted = [IGNORED if at in ends else stream[at + 1] for at in range(begin, begin + 7)]
        assert batch.targets[0].tolist() == wanted


def test_each_sample_comes_once_whatever_the_number_of_ranks():
    samples = open_samples([str(HERE / "arrow"), str(HERE / "mds-dynamic")], Options(sequence=5), vocab=1000)
    one = [Loader(samples, 4, 1).step(seen).samples for seen in range(0, 40, 4)]
    two = [[Loader(samples, 4, 1, rank, 2).step(seen).samples for rank in (0, 1)] for seen in range(0, 40, 4)]
    assert one == [[*first, *second] for first, second in two]


def test_a_run_on_foreign_data_resumes_exactly(tmp_path, monkeypatch):
    config = replace(settings(str(HERE / "megatron" / "text"), tmp_path / "whole"), sequence=16, batch=2, steps=5)
    _, whole = run(config)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        assert run(replace(config, folder=str(tmp_path / "parts")))[0] == 75
    shutil.copytree(HERE / "megatron", tmp_path / "moved")  # it may lie elsewhere by then
    moved = replace(config, folder=str(tmp_path / "parts"), data=(str(tmp_path / "moved" / "text.idx"),))
    _, resumed = run(moved)
    assert resumed.state.step == 5
    assert same(weights(whole), weights(resumed))


def test_web_data_has_the_classes_of_its_samples():
    source = open_images(str(HERE / "web"), 3, 8)
    assert source.labels == EXPECTED["web"]
    image = torch.empty(3, 8, 8, dtype=torch.uint8)
    source.read(3, image)
    assert image[:, 4, 4].tolist() == [120, 0, 255]


def damage(folder: Path, name: str) -> str:
    if name == "megatron":
        path = folder / "text.bin"
        write_durably(path, path.read_bytes()[:-2])
        return str(folder / "text")
    path = next(iter(sorted(folder.glob("*.mds" if name.startswith("mds") else "*.arrow"))))
    write_durably(path, path.read_bytes()[:-9] if name.startswith("mds") else b"nothing")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("megatron", "442 bytes, the index says 444"),
        ("mds-bytes", "bytes, index.json says"),
        ("arrow", "not an arrow file"),
    ],
)
def test_a_damaged_file_is_named(name, message, tmp_path):
    shutil.copytree(HERE / name, tmp_path / "data")
    with pytest.raises(UserError, match=message):
        open_files(damage(tmp_path / "data", name))


def web_tar(path: Path, images: int = 3) -> bytes:
    with tarfile.open(path, "w") as tar:
        for name in (f"{n}.{end}" for n in range(images) for end in ("png", "cls")):
            member = tarfile.TarInfo(name)
            member.size = 700 if name.endswith("png") else 1
            tar.addfile(member, io.BytesIO(b"1" * member.size))
    return path.read_bytes()


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: whole[:1000],  # in an image
        lambda whole: whole[:2049],  # in a class
        lambda whole: whole[:100],
        lambda whole: whole[:2560] + b"?" * 512 + whole[3072:],  # a header, which tarfile takes for the end
        lambda whole: gzip.compress(whole),
        lambda whole: b"",
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_a_damaged_tar_file_is_named(damaged, folder, tmp_path):
    path = tmp_path / "part.tar"
    path.write_bytes(damaged(web_tar(path)))
    with pytest.raises(UserError, match=r"not a whole tar file: ") as caught:
        open_images(str(tmp_path if folder else path), 3, 8)
    assert caught.value.where == str(path)
    assert "copy it again" in caught.value.fix


@pytest.mark.parametrize("name", [n for n in TEXTS if n.startswith("mds")])
@pytest.mark.parametrize("at", [0, 4, 8, -60, -1])
def test_a_damaged_mds_shard_of_the_right_size_is_named_or_read(name, at, tmp_path):
    """Never a traceback. Bytes of the tokens themselves are not covered by any checksum."""
    shutil.copytree(HERE / name, tmp_path / "data")
    shard = tmp_path / "data" / "shard.00000.mds"
    content = bytearray(shard.read_bytes())
    content[at] ^= 0x7F
    shard.write_bytes(content)
    with suppress(UserError) if at < 0 else pytest.raises(UserError, match=r"shard\.00000\.mds: "):
        documents(str(tmp_path / "data"))


def test_a_damaged_mds_shard_of_zeros_is_named(tmp_path):
    shutil.copytree(HERE / "mds-bytes", tmp_path / "data")
    shard = tmp_path / "data" / "shard.00002.mds"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(UserError, match=r"shard\.00002\.mds: the shard has the right size, but is damaged"):
        open_files(str(tmp_path / "data"))


@pytest.mark.parametrize("index", [b"{", b"\xff", b"[]", b'{"shards": [{"format": "mds"}]}', None])
def test_a_broken_index_of_mds_is_named(index, tmp_path):
    shutil.copytree(HERE / "mds-bytes", tmp_path / "data")
    path = tmp_path / "data" / "index.json"
    path.unlink() if index is None else path.write_bytes(index)
    with pytest.raises(UserError, match="not an index of MDS" if index else "is missing") as caught:
        open_files(str(tmp_path / "data"))
    assert caught.value.where == str(path)


@pytest.mark.parametrize(("file", "content"), [("state.json", b"{"), ("state.json", b"[]"), ("dataset_dict.json", b"")])
def test_a_broken_description_of_arrow_files_is_named(file, content, tmp_path):
    shutil.copytree(HERE / "arrow", tmp_path / "data")
    (tmp_path / "data" / file).write_bytes(content)
    with pytest.raises(UserError, match="not as `Dataset") as caught:
        open_files(str(tmp_path / "data"))
    assert caught.value.where == str(tmp_path / "data" / file)


def test_damaged_bytes_of_an_arrow_file_are_no_traceback(tmp_path):
    shutil.copytree(HERE / "arrow", tmp_path / "data")
    file = tmp_path / "data" / "data-00000-of-00002.arrow"
    whole, readable = file.read_bytes(), 0
    places = range(0, len(whole), 37)
    for at in places:
        file.unlink()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x7F]) + whole[at + 1 :])
        with suppress(UserError):  # what stays readable has other tokens
            documents(str(tmp_path / "data"))
            readable += 1
    assert readable < len(places), "the reader notices damage"


@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_half_of_a_megatron_data_set_names_the_other_half(ending, tmp_path):
    shutil.copytree(HERE / "megatron", tmp_path / "data")
    name = str(tmp_path / "data" / f"text{ending}")
    index = tmp_path / "data" / "text.idx"
    index.write_bytes(b"garbage" * 20)
    with pytest.raises(UserError, match=r"text\.idx: this is not Megatron's index"):
        open_files(name)
    index.unlink()
    with pytest.raises(UserError, match=r"text\.idx: the index of text\.bin is missing"):
        open_files(name)
    shutil.copy(HERE / "megatron" / "text.idx", index)
    (tmp_path / "data" / "text.bin").unlink()
    with pytest.raises(UserError, match=r"text\.bin: the tokens of this index are missing"):
        open_files(name)


def test_a_megatron_index_with_damaged_bytes_is_named(tmp_path):
    shutil.copytree(HERE / "megatron", tmp_path / "data")
    index = tmp_path / "data" / "text.idx"
    whole = index.read_bytes()
    for at in range(9, len(whole)):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        with suppress(UserError):  # the positions in bytes are not read
            documents(str(tmp_path / "data" / "text"))
    index.write_bytes(whole[:-8] + struct.pack("<q", 10**6))
    with pytest.raises(UserError, match=r"text\.idx: the index has the right size, but is damaged"):
        documents(str(tmp_path / "data" / "text"))


def test_a_folder_of_megatron_data_names_the_prefix(tmp_path):
    shutil.copytree(HERE / "megatron", tmp_path / "data")
    with pytest.raises(UserError, match="named by their prefix") as caught:
        open_files(str(tmp_path / "data"))
    assert caught.value.fix == f"--data {tmp_path / 'data' / 'text'}"


def test_a_file_of_a_prepared_folder_names_the_folder(tmp_path):
    (tmp_path / "a.txt").write_text("some text " * 50)
    prepare([str(tmp_path / "a.txt")], tmp_path / "data", workers=1, quiet=True)
    with pytest.raises(UserError, match="one shard of a prepared folder") as caught:
        open_files(str(tmp_path / "data" / "shard-00000.bin"))
    assert caught.value.fix == f"--data {tmp_path / 'data'}"
    with pytest.raises(UserError, match="this is a file"):
        open_files(str(tmp_path / "a.txt"))


def test_a_token_of_unnamed_data_beyond_the_vocabulary_names_the_model_that_fits(capsys):
    samples = open_samples([str(HERE / "arrow")], Options(sequence=8), vocab=900)
    with pytest.raises(UserError, match=r"token 9\d\d in samples") as caught:
        samples.batch([SampleId(0, 0, n) for n in range(samples.epoch_samples)])
    assert "a model with a vocabulary of at least 9" in caught.value.fix
    assert data(["verify", str(HERE / "arrow"), "--json"]) == 0
    largest = json.loads(capsys.readouterr().out)["largest_token"]
    assert largest == max(token for document in EXPECTED["arrow"] for token in document)


@pytest.mark.parametrize("name", TEXTS)
def test_show_and_verify_read_what_others_prepared(name, capsys):
    folder = str(HERE / TEXTS[name])
    assert data(["show", folder, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["documents"] == len(EXPECTED[name])
    assert facts["tokens"] == sum(map(len, EXPECTED[name]))
    assert data(["show", folder]) == data(["verify", folder]) == 0
    said = capsys.readouterr().out
    for words in (facts["format"], "not named by the data", "keeps no checksums"):
        assert words in said


def test_verify_names_a_damaged_file_and_show_says_what_it_cannot_read(tmp_path):
    shutil.copytree(HERE / "mds-bytes", tmp_path / "data")
    with pytest.raises(UserError, match=r"bytes, index\.json says"):
        data(["verify", damage(tmp_path / "data", "mds-bytes")])
    for verb in ("show", "verify"):
        with pytest.raises(UserError, match="a WebDataset of images"):
            data([verb, str(HERE / "web")])


def test_token_ids_that_do_not_fit_are_refused_with_their_place(tmp_path):
    """They wrapped: 2 ** 32 + 5 was read as token 5. In MDS (LLM Foundry writes int64) and in arrow (the default of
    `datasets` is int64)."""
    shutil.copytree(HERE / "mds-bytes", tmp_path / "mds")
    shard = tmp_path / "mds" / "shard.00008.mds"
    content, document = shard.read_bytes(), EXPECTED["mds-bytes"][-1]
    last = struct.unpack_from("<I", content)[0] - 1
    packed = struct.pack(f"<{len(document)}q", *document)
    assert packed in content
    wrong = struct.pack(f"<{len(document)}q", document[0], 2**32 + 5, *document[2:])
    write_durably(shard, content.replace(packed, wrong))
    with pytest.raises(UserError, match=rf"shard\.00008\.mds: sample {last}: token 4294967301 "):
        documents(str(tmp_path / "mds"))


@pytest.mark.parametrize(
    ("kind", "value"), [("int64", 2**31), ("int64", -(2**32)), ("uint32", 2**31 + 7), ("uint64", 2**64 - 1)]
)
def test_token_ids_of_arrow_columns_that_do_not_fit(kind, value, tmp_path):
    kinds = {"int64": pa.int64(), "uint32": pa.uint32(), "uint64": pa.uint64()}
    rows = pa.array([[1, 2, 3], [4, 5], [6, value]], pa.list_(kinds[kind]))
    table = pa.table({"input_ids": rows})
    (tmp_path / "data").mkdir()
    with pa.ipc.new_stream(tmp_path / "data" / "part.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    with pytest.raises(UserError, match=rf"part\.arrow: sample 2: token {value} "):
        documents(str(tmp_path / "data"))


def test_a_class_number_that_is_none_is_refused(tmp_path):
    """It made all classes of the data set be counted anew."""
    with tarfile.open(tmp_path / "part.tar", "w") as tar:
        for name, content in (("a.png", b"x"), ("a.cls", b"2"), ("b.png", b"x"), ("b.cls", b"4294967301")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(UserError, match=r"part\.tar: b\.cls: the class is 4294967301"):
        open_images(str(tmp_path / "part.tar"), 3, 8)


@pytest.mark.parametrize("name", ["megatron", "mds-bytes", "arrow"])
def test_data_in_s3_is_copied_once_and_read(name, s3, tmp_path):
    bucket = Bucket(s3)
    for path in (HERE / name).iterdir():
        bucket.write(f"set/{path.name}", path.read_bytes())
    uri = f"{s3}/set/text" if name == "megatron" else f"{s3}/set"
    for _ in range(2):
        files = open_files(uri, tmp_path, vocab=1000)
        tokens = [(files.tokens(s)[0 : s.tokens].long() & 0xFFFF).tolist() for s in files.manifest.shards]
        assert [t for shard in tokens for t in shard] == [t for document in EXPECTED[name] for t in document]
        for path in (HERE / name).iterdir():
            bucket.write(f"set/{path.name}", path.read_bytes())  # the same content: the copy stays
    assert len(list(tmp_path.glob("foreign-*/.complete"))) == 1


def test_what_is_no_data_set_is_not_copied_from_s3(s3, tmp_path):
    Bucket(s3).write("texts/part-0.jsonl", b"{}")
    with pytest.raises(UserError, match=r"no manifest\.json"):
        open_files(f"{s3}/texts", tmp_path)
    assert not list(tmp_path.iterdir())


def packed_mds(folder: Path, compression: str, pack) -> Path:
    """The data set of `mds-dynamic` with only compressed shards, as `MDSWriter(compression=...)` leaves it."""
    shutil.copytree(HERE / "mds-dynamic", folder)
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        raw = folder / shard["raw_data"]["basename"]
        packed = raw.with_name(f"{raw.name}.{compression.partition(':')[0]}")
        packed.write_bytes(pack(raw.read_bytes()))
        raw.unlink()
        shard |= {"compression": compression, "zip_data": {"basename": packed.name, "bytes": packed.stat().st_size}}
    write_durably(folder / "index.json", json.dumps(index).encode())
    return folder


@pytest.mark.parametrize(
    ("compression", "pack"),
    [("zstd:7", zstandard.ZstdCompressor().compress), ("gz", gzip.compress), ("bz2:9", bz2.compress)],
)
def test_compressed_shards_are_unpacked_once(compression, pack, tmp_path):
    folder = packed_mds(tmp_path / "data", compression, pack)
    assert documents(str(folder)) == EXPECTED["mds-dynamic"]
    raw = folder / "shard.00000.mds"
    written = raw.stat().st_mtime_ns
    assert documents(str(folder)) == EXPECTED["mds-dynamic"]
    assert raw.stat().st_mtime_ns == written


def test_compressed_shards_that_cannot_be_unpacked(tmp_path):
    broken = packed_mds(tmp_path / "broken", "zstd", lambda raw: zstandard.ZstdCompressor().compress(raw)[:-5])
    with pytest.raises(UserError, match="cannot decompress"):
        open_files(str(broken))
    assert not list(broken.glob("*.mds")), "so that it can be copied again"
    with pytest.raises(UserError, match="compressed with snappy are not read"):
        open_files(str(packed_mds(tmp_path / "other", "snappy", lambda raw: raw)))


def test_what_cannot_be_read_says_why(tmp_path):
    shutil.copytree(HERE / "mds-bytes", tmp_path / "text")
    index = tmp_path / "text" / "index.json"
    index.write_text(index.read_text().replace('"tokens"', '"text"'))
    with pytest.raises(UserError, match="none holds tokens"):
        open_files(str(tmp_path / "text"))
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UserError, match="splits train, test"):
        open_files(str(tmp_path / "dict"))
    samples = open_samples([str(HERE / "arrow")], Options(sequence=8), vocab=900)
    with pytest.raises(UserError, match=r"token 9\d\d in samples"):
        samples.batch([SampleId(0, 0, n) for n in range(samples.epoch_samples)])
    from trainwright.train.data.masked import MaskedSamples

    with pytest.raises(UserError, match="needs the special tokens"):
        open_samples([str(HERE / "arrow")], Options(sequence=8), vocab=1000, kind=MaskedSamples)
