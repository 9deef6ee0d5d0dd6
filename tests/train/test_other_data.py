"""A run that meets other data than before: tokens of another tokenizer, another cut or order, names with a colon."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from single import corpus, events, metrics, run, settings

from trainwright.errors import UserError
from trainwright.train.data.cli import main as data_main
from trainwright.train.data.loader import Options
from trainwright.train.data.named import open_samples, parse_mixture
from trainwright.train.models.convert import export_main, import_main

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same text in bytes, and in the words of two BPEs of one size."""
    folder = tmp_path_factory.mktemp("data")
    corpus(folder)
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": f"row {i}, other " * 20}) + "\n" for i in range(99)))
    for name, text in (("bpe-a", "a"), ("bpe-b", "b")):
        prepare = ["prepare", str(folder / f"{text}.jsonl"), "-o", str(folder / name), "--workers", "1"]
        data_main([*prepare, "--train-bpe", "280"])
    nested = ["prepare", str(folder / "a.jsonl"), "-o", str(folder / "bpe-more"), "--workers", "1"]
    data_main([*nested, "--train-bpe", "300"])  # the first 280 words are those of bpe-a
    shape = {"layers": 1, "hidden": 16, "heads": 2, "head_dim": 8, "ffn": 16, "vocab": 320, "context": 64}
    (folder / "tiny.json").write_text(json.dumps(shape))
    return folder


def quick(data: Path, name: str, run_folder: Path, **more):
    config = replace(settings(str(data / name), run_folder), steps=1, checkpoint_every="1", log_samples=False)
    return replace(config, **{"model": str(data / "tiny.json"), **more})


def words(folder: Path) -> dict[str, int]:
    return json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]


@pytest.mark.parametrize("other", ["bpe-b", "data"])
def test_evaluation_data_of_another_tokenizer_is_refused(other, data, tmp_path):
    config = quick(data, "bpe-a", tmp_path / "run", eval_data=(str(data / other),), eval_every=1)
    with pytest.raises(UserError, match="cannot be mixed with tokens of") as caught:
        run(config)
    assert caught.value.where == f"--eval-data {data / other}"
    assert caught.value.fix == "prepare both with the same tokenizer"
    run(replace(config, eval_data=(str(data / "bpe-a"),)))


def test_one_tokenizer_may_have_two_names(data, tmp_path):
    (tmp_path / "mine.json").write_bytes((data / "bpe-a" / "tokenizer.json").read_bytes())
    data_main(["prepare", str(data / "b.jsonl"), "-o", str(tmp_path / "b"), "--workers", "1", "--tokenizer",
               str(tmp_path / "mine.json")])  # fmt: skip
    config = quick(data, "bpe-a", tmp_path / "run", eval_data=(str(tmp_path / "b"),), eval_every=1)
    run(config)
    assert metrics(config)[-1]["eval_loss"] > 0


@pytest.mark.parametrize("other", ["bpe-b", "bpe-more", "data"])
def test_a_run_is_not_continued_with_data_of_another_tokenizer(other, data, tmp_path):
    config = quick(data, "bpe-a", tmp_path / "run")
    run(config)
    with pytest.raises(
        UserError, match=r"the data has tokens of another tokenizer than the run: token \d+ is "
    ) as caught:
        run(replace(config, data=(str(data / other),), steps=2))
    assert caught.value.where == str(data / other)
    own = tmp_path / "run"
    assert (
        caught.value.fix == f"data prepared with --tokenizer {own / 'tokenizer'}, or another --folder with --base {own}"
    )
    data_main(["prepare", str(data / "b.jsonl"), "-o", str(tmp_path / "b"), "--workers", "1", "--tokenizer",
               str(tmp_path / "run" / "tokenizer")])  # fmt: skip
    run(replace(config, data=(str(tmp_path / "b"),), steps=2))


def test_a_run_without_its_tokenizer_is_compared_by_its_checkpoint(data, tmp_path):
    """The checkpoints may be on S3, and the run folder on a new machine."""
    config = quick(data, "bpe-a", tmp_path / "run", checkpoint_to=str(tmp_path / "saved"))
    run(config)
    moved = replace(config, folder=str(tmp_path / "moved"), steps=2)
    with pytest.raises(UserError, match="the data has tokens of another tokenizer than the run"):
        run(replace(moved, data=(str(data / "bpe-b"),)))
    run(moved)
    assert words(tmp_path / "moved" / "tokenizer") == words(data / "bpe-a")


def test_an_imported_model_is_not_continued_with_another_tokenizer(data, tmp_path):
    run(quick(data, "bpe-a", tmp_path / "run"))
    export_main([str(tmp_path / "run"), str(tmp_path / "hf")])
    import_main([str(tmp_path / "hf"), str(tmp_path / "again")])
    with pytest.raises(UserError, match="another tokenizer than the run"):
        run(quick(data, "bpe-b", tmp_path / "again"))
    run(quick(data, "bpe-a", tmp_path / "again"))


@pytest.mark.parametrize("other", ["bpe-b", "bpe-more"])
@pytest.mark.parametrize("resume", ["never", "auto"])
def test_a_run_that_starts_over_has_the_tokenizer_of_its_data(resume, other, data, tmp_path):
    """With --resume never, or where nothing was saved yet."""
    config = quick(data, "bpe-a", tmp_path / "run", checkpoint_every="never" if resume == "auto" else "1")
    run(config)
    run(replace(config, data=(str(data / other),), resume=resume))
    assert words(tmp_path / "run" / "tokenizer") == words(data / other)
    assert words(tmp_path / "run" / "tokenizer.aside") == words(data / "bpe-a")


def test_a_base_whose_tokenizer_cannot_be_read_is_noted(data, tmp_path, capsys):
    run(quick(data, "bpe-a", tmp_path / "run"))
    export_main([str(tmp_path / "run"), str(tmp_path / "hf")])
    (tmp_path / "hf" / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    run(quick(data, "bpe-a", tmp_path / "of-hf", base=str(tmp_path / "hf")))
    assert f"note: the tokenizer of --base {tmp_path / 'hf'} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "noted"), [("bpe-a", False), ("bpe-b", True)])
def test_a_base_with_another_tokenizer_is_noted(name, noted, data, tmp_path, capsys):
    run(quick(data, "bpe-a", tmp_path / "run"))
    export_main([str(tmp_path / "run"), str(tmp_path / "hf")])
    for base in ("run", "hf"):
        capsys.readouterr()
        run(quick(data, name, tmp_path / f"of-{base}", base=str(tmp_path / base)))
        text = f"note: the data has tokens of another tokenizer than --base {tmp_path / base}: token "
        assert (text in capsys.readouterr().err) == noted


@pytest.mark.parametrize(
    "change", [{"sequence": 64}, {"seed": 3}, {"holdout": 0.1}, {"shuffle": False}, {"data": "other"}, {"batch": 6}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_tokens_never_fall_in_a_run(change, data, tmp_path):
    config = replace(quick(data, "bpe-a", tmp_path / "run"), steps=2, micro_batch=1)
    run(config)
    if "data" in change:
        data_main(["prepare", str(data / "b.jsonl"), "-o", str(tmp_path / "b"), "--workers", "1", "--tokenizer",
                   str(data / "bpe-a")])  # fmt: skip
        change = {"data": (str(tmp_path / "b"),)}
    later = replace(config, steps=4, **change)
    run(later)
    each = later.batch * later.sequence
    assert [row["tokens"] for row in metrics(config)] == [128, 256, 256 + each, 256 + 2 * each]


def test_a_checkpoint_of_an_earlier_version_counts_its_samples(data, tmp_path):
    config = replace(quick(data, "bpe-a", tmp_path / "run"), steps=2)
    run(config)
    [path] = (tmp_path / "run" / "checkpoints").glob("*2/manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["trainer"]["state"]["tokens"]
    path.write_text(json.dumps(manifest))
    run(replace(config, steps=3, sequence=64))
    assert metrics(config)[-1]["tokens"] == 256 + 256


@pytest.mark.parametrize("given", [6, 0])
def test_a_batch_that_was_given_is_not_advised(given, data, tmp_path):
    config = quick(data, "bpe-a", tmp_path / "run")
    run(config)
    run(replace(config, batch=given, steps=2))
    notes = [event["text"] for event in events(config, "note")]
    now = given or 2
    assert notes == [f"a step had 4 samples and now has {now}" + ("" if given else "; set --batch to keep it")]


def test_a_folder_with_a_colon_and_a_number_is_a_path(data, tmp_path):
    (tmp_path / "my:3").symlink_to(data / "data")
    name = str(tmp_path / "my:3")
    assert parse_mixture([name, f"{name}:2"]) == ([name, name], [1.0, 2.0])
    assert open_samples([name], Options(16)).epoch_samples


@pytest.mark.parametrize(("name", "what"), [
    ("none:3", "no such data folder (`:3` was read as its weight)"), ("none", "no such data folder"),
])  # fmt: skip
def test_a_weight_is_named_where_the_folder_is_missing(name, what, tmp_path):
    with pytest.raises(UserError) as caught:
        open_samples([str(tmp_path / name)], Options(16))
    assert (caught.value.what, caught.value.where) == (what, str(tmp_path / "none"))
