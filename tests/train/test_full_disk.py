"""A full disk: one clear error with path and numbers, nothing of ours left on the disk, and the same command works once
there is room. A limit on the size of files, which every user may set, stands for the full disk."""

import contextlib
import errno
import json
import os
import re
import resource
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from single import MODEL, corpus, events, metrics, run, settings

from trainwright.errors import UserError
from trainwright.train import record
from trainwright.train.__main__ import main
from trainwright.train.checkpoint.stores import FolderStore
from trainwright.train.data.cli import main as data_main
from trainwright.train.data.format import write_durably
from trainwright.train.metrics import Journal, read_lines
from trainwright.train.models import hf_tokenizer

NUMBERS = r"needs (more than )?[\d.,]+ (GB|bytes), [\d.,]+ (GB|bytes) are free"


@contextlib.contextmanager
def room(size: int):
    """No file may become larger than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def config(data, tmp_path):
    return replace(settings(data, tmp_path / "run"), checkpoint_every="2", steps=4)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run, and the Hugging Face folder made of it."""
    folder = tmp_path_factory.mktemp("trained")
    run(replace(settings(data, folder / "run"), steps=1, checkpoint_every="1"))
    assert main(["export", str(folder / "run"), str(folder / "hf")]) == 0
    return folder


def words(config):
    given = ["--model", MODEL, "--data", *config.data, "--folder", config.folder, "--sequence", "32", "--batch", "4"]
    return [*given, "--checkpoint-every", "2", "--steps", "4"]


def require_clear(shown: str, where: object) -> None:
    """The error comes last, in one line and its fix."""
    assert "Traceback" not in shown
    error, fix = shown.splitlines()[-2:]
    assert error.startswith(f"error: {where}")
    assert "no space left" in error
    assert re.search(NUMBERS, error), error
    assert fix.startswith("  fix: ")


def hidden(folder: Path) -> list[str]:
    """Files and folders under temporary names."""
    named = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.name[0] == "." or "partial" in p.name}
    return sorted(name for name in named if not name.endswith("/.metadata"))


def test_a_file_that_finds_no_room_leaves_nothing(tmp_path):
    write_durably(tmp_path / "a.json", b"old")
    with room(100), pytest.raises(UserError, match=rf"a\.json: no space left: it {NUMBERS}"):
        write_durably(tmp_path / "a.json", b"x" * 200)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.json", b"old")]


def test_a_line_that_finds_no_room_leaves_no_half_line(tmp_path):
    journal = Journal(tmp_path, active=True)
    journal.event("start", 0)
    with room(100), pytest.raises(UserError, match=rf"events\.jsonl: no space left: it {NUMBERS}"):
        journal.event("note", 1, text="x" * 100)
    journal.event("checkpoint", 2)
    assert [row["step"] for row in read_lines(tmp_path / "events.jsonl")] == [0, 2]
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("recorded", [True, False])
def test_a_full_disk_ends_a_run_with_one_error_and_the_same_command_continues(config, monkeypatch, capsys, recorded):
    """Also where there is no room for result.json."""
    folder = Path(config.folder)
    publish = FolderStore.publish

    def publish_two(self, step, manifest):
        if step == 4:
            full()
        publish(self, step, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "publish", publish_two)
        if not recorded:
            patch.setattr(Journal, "result", full)
        assert main(words(config)) == 1
    require_clear(capsys.readouterr().err, folder / "checkpoints")
    assert hidden(folder) == []
    assert (folder / "result.json").exists() == recorded
    assert FolderStore(folder / "checkpoints").complete_steps() == [2]
    assert main(words(config)) == 0
    assert [line["step"] for line in metrics(config)] == [1, 2, 3, 4]
    assert events(config, "resume")[-1]["step"] == 2


def test_a_start_removes_what_an_interrupted_one_left_before_it_writes(config, monkeypatch):
    folder = Path(config.folder)
    partial = folder / "checkpoints" / ".step-00000002.partial"
    partial.mkdir(parents=True)
    (partial / "__0_0.distcp").write_bytes(b"x" * 1000)
    (folder / ".result.json.0123456789ab").write_bytes(b"{")
    true = record.write_durably

    def write(path, content):
        assert hidden(folder) == [], "no room"
        true(path, content)

    monkeypatch.setattr(record, "write_durably", write)
    assert run(config)[0] == 0


def test_a_disk_that_is_full_at_the_start_is_said_with_nothing_trained(config, monkeypatch, capsys):
    monkeypatch.setattr(record, "write_durably", lambda path, content: full())
    monkeypatch.setattr(Journal, "result", full)
    assert main(words(config)) == 2
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert f"error: {config.folder}: no space left" in shown


@pytest.mark.parametrize("more", [[], ["--file-gb", "0.0001"]])
def test_an_export_without_room_leaves_nothing(trained, tmp_path, capsys, more):
    words = ["export", str(trained / "run"), str(tmp_path / "hf"), *more]
    with room(50_000):
        assert main(words) == 2
    require_clear(capsys.readouterr().err, tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []
    assert main(words) == 0


def test_an_export_is_refused_before_it_begins_where_the_disk_is_too_small(trained, tmp_path, capsys, monkeypatch):
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage(10, 7, 3))
        assert main(["export", str(trained / "run"), str(tmp_path / "hf")]) == 2
    shown = capsys.readouterr().err
    require_clear(shown, tmp_path / "hf")
    assert "3 bytes are free" in shown
    assert list(tmp_path.iterdir()) == []


def test_an_import_without_room_leaves_nothing_and_works_later(trained, tmp_path, capsys):
    words = ["import", str(trained / "hf"), str(tmp_path / "again"), "--model", MODEL]
    with room(50_000):
        assert main(words) == 2
    require_clear(capsys.readouterr().err, tmp_path / "again")
    assert hidden(tmp_path) == []
    assert main(words) == 0


def test_an_import_without_room_for_the_tokenizer_works_later(trained, tmp_path, capsys, monkeypatch):
    words = ["import", str(trained / "hf"), str(tmp_path / "again"), "--model", MODEL]
    with monkeypatch.context() as patch:
        patch.setattr(hf_tokenizer.shutil, "copyfile", full)
        assert main(words) == 2
    assert "no space left" in capsys.readouterr().err
    assert main(words) == 0


def test_data_without_room_keeps_the_finished_shards_and_nothing_else(tmp_path):
    source, made = tmp_path / "a.txt", tmp_path / "data"
    source.write_text("word " * 5000)
    words = ["prepare", str(source), "-o", str(made), "--workers", "1"]
    with room(20_000), pytest.raises(UserError, match=f"no space left.*{NUMBERS}") as raised:
        data_main(words)
    assert raised.value.where == str(made / "shard-00000.bin")
    assert "--output" in raised.value.fix
    assert "the same command continues" in raised.value.fix
    assert list(made.iterdir()) == []
    assert data_main(words) == 0


def test_chats_without_room_leave_nothing(tmp_path):
    source, made = tmp_path / "a.jsonl", tmp_path / "rows"
    talk = [{"role": "user", "content": "x" * 20}, {"role": "assistant", "content": "y" * 20}]
    source.write_text("".join(json.dumps({"messages": talk}) + "\n" for _ in range(200)))
    words = ["chat", str(source), "-o", str(made), "--sequence", "128"]
    with room(4_000), pytest.raises(UserError, match=f"no space left.*{NUMBERS}"):
        data_main(words)
    assert not made.exists()
    assert data_main(words) == 0


def test_torch_says_that_the_disk_is_full_and_so_do_we(tmp_path):
    from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention

    saver = Checkpointer(FolderStore(tmp_path), Retention(), torch.device("cpu"), {"name": "m"})
    with room(10_000), pytest.raises(UserError, match=f"no space left for a checkpoint: it {NUMBERS}"):
        saver.save_now(1, {"model": {"w": torch.zeros(10_000)}}, {})
    assert list(tmp_path.iterdir()) == []


def save_where_rank_1_has_no_room(folder: str) -> str:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention

    weight = distribute_tensor(torch.zeros(20_000), init_device_mesh("cpu", (2,)), [Shard(0)])
    saver = Checkpointer(FolderStore(Path(folder)), Retention(), torch.device("cpu"), {"name": "m"})
    with room(10_000) if os.environ["RANK"] == "1" else contextlib.nullcontext():
        try:
            saver.save_now(1, {"model": {"w": weight}}, {})
        except UserError as error:
            return str(error)
    return "saved"


def test_every_rank_says_that_the_disk_of_one_is_full(tmp_path):
    for message in run_ranks(save_where_rank_1_has_no_room, 2, str(tmp_path)):
        assert re.search(f"no space left for a checkpoint: it {NUMBERS}", message), message
    assert list(tmp_path.iterdir()) == []
