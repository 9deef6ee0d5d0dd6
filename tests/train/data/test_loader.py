"""The loader: packing, borders between documents, disjoint ranks, resume under another world size, mixtures."""

import json
import threading
from pathlib import Path

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED
from trainwright.train.data.loader import Loader, Options, SampleId, number_at_once, number_one_by_one
from trainwright.train.data.named import open_samples, parse_mixture
from trainwright.train.data.prepare import prepare
from trainwright.train.data.source import outside, widen


def corpus(folder, texts, name="data", shard_bytes=1 << 20):
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    prepare([str(path)], folder / name, shard_bytes=shard_bytes, workers=1, quiet=True)
    return str(folder / name)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    texts = [f"{i:04d} " + "abcdefgh" * (i % 7) for i in range(300)]
    return corpus(tmp_path_factory.mktemp("loader"), texts, shard_bytes=2000)


def flat(data):
    """The whole stream, put together from documents, which the loader must reproduce."""
    samples = open_samples([data], Options(sequence=16, shuffle=False))
    source = samples.sources[0]
    stored = torch.cat([source.files.tokens(s) for s in source.shards])
    return widen(stored, 257, torch.empty(len(stored), dtype=torch.int64))


def test_samples_tile_the_stream_across_shards(data):
    stream = flat(data)
    samples = open_samples([data], Options(sequence=48, shuffle=False, isolate=False))
    assert len(samples.sources[0].shards) > 3
    assert samples.counts[0] == (len(stream) - 1) // 48
    loader = Loader(samples, 4, 2)
    for step in range(samples.counts[0] // 4):
        for m, batch in enumerate(loader.step(step * 4).microbatches):
            for row in range(2):
                start = (step * 4 + m * 2 + row) * 48
                assert torch.equal(batch.tokens[row], stream[start : start + 48])
                assert torch.equal(batch.targets[row], stream[start + 1 : start + 49])
                assert torch.equal(batch.positions[row], torch.arange(48))
        assert batch.documents is None


def test_documents_are_isolated_exactly_at_their_ends(data):
    """Judge: a plain walk over the tokens, where 256 ends a document."""
    samples = open_samples([data], Options(sequence=40, seed=3))
    batch = samples.batch([samples.locate(n) for n in range(samples.counts[0])])
    for tokens, targets, positions, documents in zip(
        batch.tokens.tolist(), batch.targets.tolist(), batch.positions.tolist(), batch.documents.tolist(), strict=True
    ):
        document = position = 0
        for at, token in enumerate(tokens):
            assert (documents[at], positions[at]) == (document, position)
            position += 1
            if token == 256:
                assert targets[at] == IGNORED
                document, position = document + 1, 0
            elif at + 1 < len(tokens):
                assert targets[at] == tokens[at + 1]
            else:
                assert targets[at] != IGNORED


def test_every_stored_token_is_widened_to_itself():
    raw = torch.tensor([0, 1, 32767, 32768, 65535], dtype=torch.int64)
    assert torch.equal(widen(raw.to(torch.uint16).view(torch.int16), 1 << 16, torch.empty_like(raw)), raw)
    large = torch.tensor([0, 65536, 200_000], dtype=torch.int64)
    assert torch.equal(widen(large.to(torch.int32), 256_000, torch.empty_like(large)), large)


def test_data_stored_in_16_and_in_32_bits_can_be_mixed(tmp_path):
    """As Megatron's uint16 beside arrow's int32, with tokens that a signed 16-bit number cannot hold."""
    high = [*range(40_000, 40_033), *range(10, 43)]
    for dtype, kind in (("uint16", torch.uint16), ("uint32", torch.int32)):
        folder = Path(corpus(tmp_path, ["x" * (len(high) - 1)], dtype))
        whole = json.loads((folder / "manifest.json").read_text())
        changed = {**whole, "dtype": dtype, "tokenizer": {**whole["tokenizer"], "vocab": 50_000}}
        (folder / "manifest.json").write_text(json.dumps(changed))
        (folder / "shard-00000.bin").write_bytes(bytes(torch.tensor(high).to(kind).view(torch.uint8).tolist()))
    names = [str(tmp_path / dtype) for dtype in ("uint16", "uint32")]
    batch = open_samples(names, Options(32, shuffle=False)).batch([SampleId(0, 0, 0), SampleId(1, 0, 0)])
    assert batch.tokens.tolist() == [high[:32], high[:32]]
    assert batch.targets.tolist() == [high[1:33], high[1:33]]


def test_both_ways_of_numbering_documents_agree():
    rows, width = 3, 64
    cuts = [0, 5, 6, 63, 64, 128, 130, 190]
    one, other = torch.empty(2, 2, rows, width, dtype=torch.int64)
    number_at_once(cuts, *one)
    number_one_by_one(cuts, *other)
    assert torch.equal(one, other)
    assert one[0].max() == 63
    assert one[1][0].tolist() == [0] * 5 + [1] + [2] * 57 + [3]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_are_disjoint_and_an_epoch_sees_everything_once(data, world):
    samples = open_samples([data], Options(sequence=16, seed=5))
    count = samples.counts[0] // 8 * 8
    seen = []
    for rank in range(world):
        loader = Loader(samples, 8, 2, rank, world)
        for step in range(count // 8):
            seen += [s.sample for s in loader.step(step * 8).samples]
    assert len(seen) == len(set(seen)) == count


def test_resume_with_another_world_size_takes_exactly_what_is_left(data):
    samples = open_samples([data], Options(sequence=16, seed=5))
    order = [samples.locate(n) for n in range(240)]

    def run(world, batch, seen, until):
        got = []
        while seen < until:
            steps = [Loader(samples, batch, 1, rank, world).step(seen) for rank in range(world)]
            got += [s for step in steps for s in step.samples]
            seen = steps[0].seen
        return got, seen

    first, seen = run(4, 8, 0, 80)
    second, seen = run(2, 8, seen, 160)
    third, seen = run(3, 12, seen, 240)
    assert seen >= 240
    assert (first + second + third)[:240] == order


def test_epochs_reshuffle_and_cover_again(data):
    samples = open_samples([data], Options(sequence=16, seed=5))
    count = samples.counts[0]
    first = [samples.locate(n) for n in range(count)]
    second = [samples.locate(n) for n in range(count, 2 * count)]
    assert {s.sample for s in first} == {s.sample for s in second} == set(range(count))
    assert {s.epoch for s in first} == {0}
    assert {s.epoch for s in second} == {1}
    assert [s.sample for s in first] != [s.sample for s in second]


def test_mixture_keeps_its_weights_and_counts_each_source(tmp_path):
    a = corpus(tmp_path, ["a" * 400] * 10, "a")
    b = corpus(tmp_path, ["b" * 400] * 10, "b")
    samples = open_samples([f"{a}:3", f"{b}:1"], Options(sequence=16))
    ids = [samples.locate(n) for n in range(400)]
    assert sum(s.source == 0 for s in ids) == 300
    first_epoch = [s.sample for s in ids if s.source == 0 and s.epoch == 0]
    assert sorted(first_epoch) == list(range(samples.counts[0]))
    assert parse_mixture(["s3://bucket/x", "folder:0.5"]) == (["s3://bucket/x", "folder"], [1.0, 0.5])


def test_holdout_is_never_trained_on(data):
    options = Options(sequence=16, holdout=0.1)
    train, held = open_samples([data], options), open_samples([data], options, held=True)
    trained = {train.locate(n).sample for n in range(3 * train.counts[0])}
    kept = {held.locate(n).sample for n in range(held.counts[0])}
    assert trained.isdisjoint(kept)
    assert len(trained) + len(kept) == train.sources[0].samples


def test_prefetch_gives_the_same_steps_and_its_thread_ends(data):
    loader = Loader(open_samples([data], Options(sequence=16)), 8, 4)
    steps = loader.steps(16, ahead=2)
    for n in range(5):
        ahead, direct = next(steps), loader.step(16 + 8 * n)
        assert ahead.samples == direct.samples
        assert torch.equal(ahead.microbatches[1].tokens, direct.microbatches[1].tokens)
    steps.close()
    assert not any(t.name == "trainwright-data" for t in threading.enumerate())


def test_an_error_in_the_thread_reaches_the_loop(data, monkeypatch):
    loader = Loader(open_samples([data], Options(sequence=16)), 8, 4)

    def broken(seen):
        raise OSError("the disk is gone")

    monkeypatch.setattr(loader, "step", broken)
    with pytest.raises(OSError, match="disk is gone"):
        next(loader.steps(0))


def test_bad_input_names_the_two_numbers(data, tmp_path):
    tokens = len(flat(data))
    with pytest.raises(UserError, match=f"context is 1,000,000 tokens, the data holds {tokens:,}"):
        open_samples([data], Options(sequence=1_000_000))
    with pytest.raises(UserError, match="vocabulary has 257 words, the model's 128"):
        open_samples([data], Options(sequence=16), vocab=128)
    with pytest.raises(UserError, match=r"batch of 10 .* 4 data ranks x micro-batches of 2 = 8") as caught:
        Loader(open_samples([data], Options(sequence=16)), 10, 2, 0, 4)
    assert caught.value.fix == "--batch 8"
    with pytest.raises(UserError, match="no such data folder"):
        open_samples([str(tmp_path / "absent")], Options(sequence=16))


@pytest.mark.parametrize("weight", ["nan", "inf", "0", "-1"])
def test_weights_that_are_none_are_refused(data, weight):
    with pytest.raises(UserError, match="weights must all be positive"):
        open_samples([data, f"{data}:{weight}"], Options(sequence=16))


@pytest.mark.parametrize("count", [1, 7, 12])
def test_an_evaluation_sees_the_same_samples_on_any_number_of_ranks(data, count):
    samples = open_samples([data], Options(32))

    def seen(world: int, micro: int) -> list[list[int]]:
        loaders = [Loader(samples, micro * world, micro, rank, world) for rank in range(world)]
        batches = [list(loader.evaluation(count)) for loader in loaders]
        assert len({len(b) for b in batches}) == 1, "every rank takes part in every micro-batch"
        rows = [(b.tokens[i].tolist(), b.targets[i]) for r in batches for b in r for i in range(micro)]
        return sorted(tokens for tokens, targets in rows if bool((targets != IGNORED).any()))

    assert len(seen(1, 1)) == count
    assert seen(1, 1) == seen(1, 4) == seen(2, 2) == seen(3, 1) == seen(4, 2)


@pytest.mark.parametrize(
    "token", [9999, 32768, 65436]
)  # as a signed number, the last is the value of an ignored target
def test_a_token_outside_the_vocabulary_is_named(token, tmp_path):
    (tmp_path / "a.txt").write_text("some text " * 50)
    prepare([str(tmp_path / "a.txt")], tmp_path / "data", workers=1, quiet=True)
    with (tmp_path / "data" / "shard-00000.bin").open("r+b") as handle:
        handle.seek(20)
        handle.write(token.to_bytes(2, "little"))
    samples = open_samples([str(tmp_path / "data")], Options(64, shuffle=False))
    with pytest.raises(UserError, match=rf"token {token} in samples \[0\], but the vocabulary has 257") as caught:
        samples.batch([samples.locate(0)])
    assert "data verify" in caught.value.fix


def test_tokens_are_compared_with_the_vocabulary_as_they_were_stored():
    short, long = (lambda *v: torch.tensor(v, dtype=torch.uint16).view(torch.int16)), torch.tensor([5, -100]).int()
    assert outside(short(0, 40_000, 5), 40_001) is None
    assert outside(short(0, 65_535, 5), 40_001) == 65_535
    assert outside(long, 200_000) == -100
    assert outside(long[:1], 5) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "uint8"}, "dtype is 'uint8'"),
        ({"dtype": None}, "dtype is None"),
        ({"tokenizer": {"name": "bytes"}}, "vocab"),
        ({"tokenizer": {"name": "bytes", "vocab": "many", "eos": 256}}, "not a whole number"),
        ({"shards": [{"name": "shard-00000"}]}, "tokens"),
        ({"shards": None}, "NoneType"),
    ],
)
def test_a_manifest_without_a_key_is_the_users_error(tmp_path, change, message):
    (tmp_path / "a.txt").write_text("some text " * 50)
    prepare([str(tmp_path / "a.txt")], tmp_path / "data", workers=1, quiet=True)
    path = tmp_path / "data" / "manifest.json"
    whole = json.loads(path.read_text())
    for key in change:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(UserError, match="not a manifest of token shards"):
            open_samples([str(tmp_path / "data")], Options(64))
    path.write_text(json.dumps({**whole, **change}))
    with pytest.raises(UserError, match=message):
        open_samples([str(tmp_path / "data")], Options(64))


def test_rows_with_several_documents_come_first_on_a_gpu(tmp_path):
    data = corpus(tmp_path, [str(i) * (900 if i % 2 else 20) for i in range(40)])
    samples = open_samples([data], Options(64))
    ids = [samples.locate(n) for n in range(16)]
    plain, grouped = samples.batch(ids), samples.grouped_batch(ids)
    several = [bool(row.max() > 0) for row in grouped.documents]
    assert 0 < grouped.mixed_rows < 16
    assert several == [i < grouped.mixed_rows for i in range(16)]
    for name in ("tokens", "targets", "positions", "documents"):
        assert sorted(getattr(plain, name).tolist()) == sorted(getattr(grouped, name).tolist())
    assert samples.batch(ids).mixed_rows is None
    assert grouped.to("cpu").mixed_rows == grouped.mixed_rows
