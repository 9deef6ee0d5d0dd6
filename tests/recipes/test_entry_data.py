"""The data of our programs for other frameworks: token shards by memory map, rows in a bounded amount, and an order
that gives every sample of an epoch to one rank, once."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trainwright.recipes.framework import FOLDER
from trainwright.train.data.cli import main as data_main


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`entry_common` as it lies beside a program on the nodes."""
    for folder in (FOLDER, FOLDER.parents[1]):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("entry_common", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import entry_common

    return entry_common


def test_token_shards_are_read_as_sequences_of_equal_length(entry: ModuleType, tmp_path: Path) -> None:
    texts = ["a" * 1_500_000, "b" * 900_000]
    (tmp_path / "en").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / f"en/c4-{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    out = str(tmp_path / "tokens")
    assert data_main(["prepare", str(tmp_path / "en"), "-o", out, "--shard-size", "1", "--workers", "1"]) == 0
    assert entry.is_prepared(out)
    data = entry.TokenShards(Path(out), 100)
    assert data.vocab == 257
    joined = [number for index in range(len(data)) for number in data[index]["input_ids"]]
    whole = [number for text in texts for number in (*text.encode(), 256)]
    assert len(data.shards) > 1
    assert len(joined) > len(whole) - 100 * len(data.shards)
    assert joined[:400_000] == whole[:400_000]
    with pytest.raises(IndexError):
        data[len(data)]


def test_rows_are_found_in_folders_and_archives_and_not_read_without_bound(
    entry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "en").mkdir()
    with gzip.open(tmp_path / "en/part.json.gz", "wt") as file:
        file.write('{"text": "one"}\n\n{"text": "two"}\n')
    (tmp_path / "more.jsonl").write_text('{"text": "three"}\n')
    assert [row["text"] for row in entry.rows(str(tmp_path), "stdlib")] == ["one", "two", "three"]
    monkeypatch.setattr(entry, "LARGEST", 10)
    with pytest.raises(SystemExit, match="every rank would read whole"):
        entry.rows(str(tmp_path), "stdlib")


@pytest.mark.parametrize("longest", [1_000_000, 0], ids=["a list", "a permutation"])
def test_every_sample_of_an_epoch_is_seen_once_by_one_rank(
    entry: ModuleType, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "SHUFFLED", longest)
    given = argparse.Namespace(batch=8, seed=3)
    monkeypatch.setenv("WORLD_SIZE", "4")
    epochs = []
    for first in (1, 126):
        seen = []
        for step in range(first, first + 125):
            for rank in range(4):
                monkeypatch.setenv("RANK", str(rank))
                seen += entry.samples_of(step, 1003, given)
        assert len(set(seen)) == len(seen) == 1000
        assert max(seen) < 1003
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])
