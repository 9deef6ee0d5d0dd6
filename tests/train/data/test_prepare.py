"""Preparation: every format gives the same tokens, a kill loses nothing finished, damage is found."""

import gzip
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.train.data.cli import main
from trainwright.train.data.format import damaged, read_manifest
from trainwright.train.data.prepare import prepare
from trainwright.train.data.readers import Piece, Reading, documents, pieces
from trainwright.train.data.source import Folder, TokenSource, stdlib_folder

TEXTS = ["first document", "zweites: größer", "a\nthird\n\none", "", "last 🚂"]


def stream(folder: Path) -> list[int]:
    files = Folder(folder)
    return [t for shard in files.manifest.shards if shard.tokens for t in files.tokens(shard).tolist()]


def expected(texts=TEXTS) -> list[int]:
    return [t for text in texts if text for t in [*text.encode(), 256]]


def write_jsonl(path: Path, texts=TEXTS) -> Path:
    path.write_text("".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(texts)), encoding="utf-8")
    return path


def test_every_format_gives_the_same_tokens(tmp_path):
    import pyarrow
    import pyarrow.parquet
    import zstandard

    plain = write_jsonl(tmp_path / "a.jsonl")
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    zipped = tmp_path / "a.jsonl.zst"
    zipped.write_bytes(zstandard.compress(plain.read_bytes()))
    table = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), table, row_group_size=2)
    text = tmp_path / "a.txt"
    text.write_text("<end>".join(TEXTS), encoding="utf-8")
    for number, path in enumerate((plain, packed, zipped, table, text)):
        folder = tmp_path / f"out{number}"
        manifest = prepare([str(path)], folder, reading=Reading(separator="<end>"), workers=1, quiet=True)
        assert stream(folder) == expected(), path
        assert manifest.documents == 4
        assert not damaged(manifest, folder)


@pytest.mark.parametrize("target", [1, 7, 64, 1000])
def test_cutting_a_file_anywhere_loses_and_doubles_nothing(tmp_path, target):
    path = write_jsonl(tmp_path / "a.jsonl", [f"document {i} " * (i % 5) + "x" for i in range(40)])
    reading = Reading()
    whole = list(documents(Piece(str(path), "jsonl", 0, path.stat().st_size, 0), reading))
    parts = [text for piece in pieces(path, "a", target, reading) for text in documents(piece, reading)]
    assert parts == whole


def test_a_separator_that_overlaps_itself_is_not_cut(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n\n\nb\n\nc", encoding="utf-8")
    reading = Reading(separator="\n\n")
    assert len(list(pieces(path, "a", 3, reading))) == 1
    assert [t for p in pieces(path, "a", 3, reading) for t in documents(p, reading)] == ["a", "\nb", "c"]


def test_several_workers_give_the_shards_of_one(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [f"document {i} " * 50 for i in range(200)])
    one = prepare([str(path)], tmp_path / "one", shard_bytes=20_000, workers=1, quiet=True)
    two = prepare([str(path)], tmp_path / "two", shard_bytes=20_000, workers=2, quiet=True)
    assert one.shards == two.shards
    assert len(one.shards) > 4


def test_a_trained_tokenizer_round_trips(tmp_path, capsys):
    import tokenizers

    path = write_jsonl(tmp_path / "a.jsonl", ["the train ran over the bridge " * 20] * 5)
    assert main(["prepare", str(path), "-o", str(tmp_path / "out"), "--train-bpe", "300", "--workers", "1"]) == 0
    manifest = read_manifest(tmp_path / "out")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    tokens = stream(tmp_path / "out")
    assert manifest.tokenizer.vocab <= 300
    assert len(tokens) < 5 * 20 * 30 / 2  # it compresses
    first = tokens[: tokens.index(manifest.tokenizer.eos)]
    assert tokenizer.decode(first) == "the train ran over the bridge " * 20


def test_killed_preparation_continues_and_keeps_what_was_done(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [f"document {i} " * 200 for i in range(400)])
    out = tmp_path / "out"
    code = (
        "import os, signal; from trainwright.train.data import prepare as p\n"
        "made = p.make_shard\n"
        "def stop(job):\n"
        "    if job.name == 'shard-00003': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return made(job)\n"
        "p.make_shard = stop\n"
        f"p.prepare([{str(path)!r}], p.Path({str(out)!r}), shard_bytes=100_000, workers=1, quiet=True)"
    )
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "src"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(UserError, match="did not finish"):
        read_manifest(out)
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("shard-0000[0-2].bin")}
    assert len(before) == 3
    manifest = prepare([str(path)], out, shard_bytes=100_000, workers=1, quiet=True)
    assert {p.name: p.stat().st_mtime_ns for p in out.glob("shard-0000[0-2].bin")} == before
    fresh = prepare([str(path)], tmp_path / "fresh", shard_bytes=100_000, workers=1, quiet=True)
    assert manifest.shards == fresh.shards
    assert not list(out.glob("*.json.*"))
    assert not list(out.glob("shard-*.json"))


def test_a_damaged_shard_is_found_and_rebuilt(tmp_path, capsys):
    path = write_jsonl(tmp_path / "a.jsonl")
    out = tmp_path / "out"
    prepare([str(path)], out, workers=1, quiet=True)
    shard = out / "shard-00000.bin"
    good = shard.read_bytes()
    shard.write_bytes(b"\x00" + good[1:])
    assert main(["verify", str(out)]) == 1
    assert "shard-00000.bin" in capsys.readouterr().out
    prepare([str(path)], out, workers=1, quiet=True)
    assert shard.read_bytes() == good
    assert main(["verify", str(out)]) == 0


def test_a_truncated_or_missing_shard_names_both_sizes(tmp_path):
    out = tmp_path / "out"
    prepare([str(write_jsonl(tmp_path / "a.jsonl"))], out, workers=1, quiet=True)
    shard = out / "shard-00000.bin"
    size = shard.stat().st_size
    os.truncate(shard, size - 2)
    with pytest.raises(UserError, match=f"{size - 2} bytes, the manifest says {size} bytes"):
        Folder(out)
    shard.unlink()
    with pytest.raises(UserError, match="missing"):
        Folder(out)


def test_another_tokenizer_into_the_same_folder_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["the train ran over the bridge " * 20] * 5)
    prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
    with pytest.raises(UserError, match="257 words"):
        main(["prepare", str(path), "-o", str(tmp_path / "out"), "--train-bpe", "300", "--workers", "1"])


def test_bad_input_is_named(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\nnot json\n', encoding="utf-8")
    with pytest.raises(UserError, match="not JSON") as caught:
        prepare([str(bad)], tmp_path / "out", workers=1, quiet=True)
    assert caught.value.where.endswith("bad.jsonl: byte 17")
    with pytest.raises(UserError, match=r"no text in field 'body'.*'text'"):
        prepare([str(bad)], tmp_path / "out", reading=Reading("body"), workers=1, quiet=True)
    with pytest.raises(UserError, match="no such file"):
        prepare([str(tmp_path / "absent")], tmp_path / "out")


def test_a_file_that_was_cut_off_is_named(tmp_path):
    whole = gzip.compress(b'{"text": "a long line"}\n' * 5000)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be read to its end") as caught:
        prepare([str(cut)], tmp_path / "out", workers=1, quiet=True)
    assert caught.value.where == str(cut)


def test_show_gives_facts_as_json(tmp_path, capsys):
    prepare([str(write_jsonl(tmp_path / "a.jsonl"))], tmp_path / "out", workers=1, quiet=True)
    assert main(["show", str(tmp_path / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens"] == len(expected())
    assert facts["documents"] == 4
    assert facts["vocab"] == 257


def test_the_built_in_corpus_is_real_and_repeatable(tmp_path):
    first = prepare(["builtin:stdlib"], tmp_path / "a", workers=1, quiet=True)
    again = prepare(["builtin:stdlib"], tmp_path / "b", workers=1, quiet=True)
    assert first.shards == again.shards
    assert first.tokens > 5_000_000


def test_ranks_with_the_same_process_number_make_the_corpus_at_once(tmp_path, monkeypatch):
    """Nodes and containers number their processes anew, and share the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getpid", lambda: 20)
    start = threading.Barrier(3)
    made, wrong = [], []

    def rank() -> None:
        start.wait()
        try:
            made.append(stdlib_folder())
        except Exception as error:
            wrong.append(error)

    ranks = [threading.Thread(target=rank) for _ in range(3)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    assert wrong == []
    assert len(set(made)) == 1
    assert damaged(read_manifest(made[0]), made[0]) == []
    assert [path.name for path in made[0].parent.iterdir()] == [made[0].name], "nothing is left beside it"


def lines_of_text() -> bytes:
    return b"".join(json.dumps({"text": f"line {i} of a long text"}).encode() + b"\n" for i in range(20_000))


@pytest.mark.parametrize("suffix", [".jsonl.zst", ".txt.zst"])
def test_a_zst_file_that_was_cut_off_or_damaged_is_named(tmp_path, suffix):
    """Cut between two blocks it unpacks to a shorter text without a word of warning."""
    import zstandard

    frame = zstandard.compress(lines_of_text())
    path = tmp_path / f"a{suffix}"
    half = len(frame) // 2
    for content in (frame[:half], frame[:-1], frame[:half] + b"\xff" * 2000 + frame[half + 2000 :]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cannot be read to its end") as caught:
            prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
        assert caught.value.where == str(path)
    path.write_bytes(frame + zstandard.compress(lines_of_text()))
    twice = prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
    assert twice.tokens > 2 * 20_000 * len("line 1 of a long text")


def test_a_parquet_file_that_is_none_or_holds_no_text_is_named(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS * 100, "n": list(range(len(TEXTS) * 100))}), path)
    with pytest.raises(UserError, match="column 'n' holds int64, not text"):
        prepare([str(path)], tmp_path / "out", reading=Reading("n"), workers=1, quiet=True)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot be read as parquet") as caught:
        prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
    assert caught.value.where == str(path)


def word_tokenizer(path: Path, words: dict[str, int]) -> str:
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return str(path)


def test_a_vocabulary_with_gaps_is_as_large_as_its_last_word(tmp_path):
    name = word_tokenizer(tmp_path / "t.json", {"a": 0, "b": 1, "[UNK]": 2, "</s>": 90_000})
    (tmp_path / "a.txt").write_text("a b c")
    manifest = prepare([str(tmp_path / "a.txt")], tmp_path / "out", name, workers=1, quiet=True)
    assert (manifest.tokenizer.vocab, manifest.dtype, manifest.tokens) == (90_001, "uint32", 4)


def test_the_token_that_ends_a_document_can_be_named(tmp_path, capsys):
    name = word_tokenizer(tmp_path / "t.json", {"a": 0, "b": 1, "[UNK]": 2, "<END>": 3})
    (tmp_path / "a.txt").write_text("a b")
    words = ["prepare", str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), "--tokenizer", name, "--workers", "1"]
    with pytest.raises(UserError, match="no token that ends a document") as caught:
        main(words)
    assert "--end-token" in caught.value.fix
    with pytest.raises(UserError, match="no token '<END'"):
        main([*words, "--end-token", "<END"])
    assert main([*words, "--end-token", "<END>"]) == 0
    assert stream(tmp_path / "out") == [0, 1, 3]


def test_a_tokenizer_file_that_is_none_is_named(tmp_path):
    (tmp_path / "t.json").write_text('{"version"')
    with pytest.raises(UserError, match="not a tokenizer file") as caught:
        prepare([str(write_jsonl(tmp_path / "a.jsonl"))], tmp_path / "out", str(tmp_path / "t.json"), workers=1)
    assert caught.value.where == str(tmp_path / "t.json")


def test_a_tokenizer_trained_before_is_taken_only_for_the_same_request(tmp_path, capsys):
    path = write_jsonl(tmp_path / "a.jsonl", ["the train ran over the bridge " * 20] * 5)
    words = ["prepare", str(path), "-o", str(tmp_path / "out"), "--workers", "1", "--train-bpe"]
    assert main([*words, "260"]) == 0
    assert main([*words, "260"]) == 0
    with pytest.raises(UserError, match="260 words"):
        main([*words, "300"])


@pytest.mark.parametrize("option", ["--shard-size", "--workers", "--train-bpe"])
def test_numbers_below_one_are_refused(tmp_path, capsys, option):
    with pytest.raises(SystemExit):
        main(["prepare", "a.jsonl", "-o", str(tmp_path / "out"), option, "0"])
    assert "at least 1" in capsys.readouterr().err


def test_an_input_of_the_same_size_with_other_words_is_read_again(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
    write_jsonl(path, ["one", "too"])
    os.utime(path, ns=(1, 1))
    prepare([str(path)], tmp_path / "out", workers=1, quiet=True)
    assert stream(tmp_path / "out") == expected(["one", "too"])


def book(lines: int) -> str:
    return "".join(
        f"{'  ' if i % 7 == 0 else ''}line {i} of a größer book\n{chr(10) if i % 5 == 0 else ''}" for i in range(lines)
    )


@pytest.mark.parametrize("shard_bytes", [1 << 20, 3000, 700])
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_document_is_read_in_parts_and_stays_one(tmp_path, monkeypatch, shard_bytes, packed):
    """Parts of 1 kB here: the tokens and the one document are those of a file read at once, in shards of any size."""
    monkeypatch.setattr("trainwright.train.data.readers.PART", 1000)
    text = book(300)
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    (tmp_path / "b.txt").write_text("the next document")
    inputs = [str(path), str(tmp_path / "b.txt")]
    manifest = prepare(inputs, tmp_path / "out", shard_bytes=shard_bytes, workers=1, quiet=True)
    assert stream(tmp_path / "out") == expected([text, "the next document"])
    assert manifest.documents == 2
    if not packed and shard_bytes < len(text):
        assert len(manifest.shards) == pytest.approx(len(text) / shard_bytes, rel=0.5)
    source = TokenSource(Folder(tmp_path / "out"), 64)
    starts = [n * 64 + at for n in range(source.samples) for at in source.document_starts(n)]
    assert starts == [len(text.encode()) + 1]


def test_a_long_document_has_the_tokens_of_one_read_at_once(tmp_path, monkeypatch):
    text = book(400)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    main(["prepare", str(tmp_path / "a.txt"), "-o", str(tmp_path / "whole"), "--train-bpe", "400", "--workers", "1"])
    tokenizer = str(tmp_path / "whole" / "tokenizer.json")
    monkeypatch.setattr("trainwright.train.data.readers.PART", 500)
    prepare([str(tmp_path / "a.txt")], tmp_path / "parts", tokenizer, shard_bytes=2500, workers=1, quiet=True)
    assert stream(tmp_path / "parts") == stream(tmp_path / "whole")
    assert (tmp_path / "parts" / "tokenizer.json").read_bytes() == Path(tokenizer).read_bytes()


def test_a_text_without_lines_is_cut_between_characters(tmp_path, monkeypatch):
    monkeypatch.setattr("trainwright.train.data.readers.PART", 100)
    monkeypatch.setattr("trainwright.train.data.readers.LONGEST_PART", 300)
    for name, text in (("spaces", "größer " * 200), ("none", "🚂ü" * 300)):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        prepare([str(tmp_path / f"{name}.txt")], tmp_path / name, shard_bytes=500, workers=1, quiet=True)
        assert stream(tmp_path / name) == expected([text])


@pytest.mark.slow
def test_one_40_mb_text_file_fits_in_little_memory(tmp_path):
    """It took 5.2 GB as one call of the tokenizer."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    text = "".join(p.read_text("utf-8", "replace") for p in sorted(stdlib.glob("*.py")))
    (tmp_path / "a.txt").write_text((text * (40_000_000 // len(text) + 1))[:40_000_000], encoding="utf-8")
    (tmp_path / "b.txt").write_text(text[:1_000_000], encoding="utf-8")
    main(["prepare", str(tmp_path / "b.txt"), "-o", str(tmp_path / "small"), "--train-bpe", "2000", "--workers", "1"])
    code = (
        "import sys, torch; from pathlib import Path; from trainwright.train.data.prepare import prepare\n"
        "from trainwright.train.metrics import memory_gb\n"
        "m = prepare([sys.argv[1]], Path(sys.argv[2]), sys.argv[3], shard_bytes=8 << 20, workers=1, quiet=True)\n"
        "print(len(m.shards), m.documents, int(1000 * memory_gb(torch.device('cpu'))))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a.txt"), str(tmp_path / "out")]
    out = subprocess.run(
        [*words, str(tmp_path / "small" / "tokenizer.json")], check=True, capture_output=True, text=True
    )
    shards, documents_, megabytes = map(int, out.stdout.split())
    assert (shards, documents_) == (5, 1)
    assert megabytes < 1000
