"""Files written whole: the mode stays, links stay links, and an interruption leaves the old file and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.files import write_text, write_whole


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", "text\r\n")
    (tmp_path / "other").touch()
    assert (tmp_path / "ours").read_bytes() == b"text\r\n"
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_stays(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_an_interruption_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "whole")
    assert os.read(reader, 100) == b"whole"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_file_the_user_named_gets_its_folders_or_a_clear_error(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "file", "x")
    assert (tmp_path / "new" / "file").read_text() == "x"
    with pytest.raises(UserError, match="cannot write the file"):
        write_text(tmp_path / "new" / "file" / "below", "x")
