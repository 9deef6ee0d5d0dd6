"""The command as a whole: what the system refuses, and what a pipe or a key press cuts short, is no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.cli.main import main

PREDICT = ["predict", "--model", "llama3-8b", "--instance", "p5.48xlarge"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["trainwright", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("words", [[*PREDICT, "--svg"], ["advise", "--model", "llama3-8b", "--tokens", "1T",
                                   "--instances", "p5", "--nodes", "2", "--spec"]])  # fmt: skip
def test_a_full_disk_is_told_where_it_was_met(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words, "/dev/full") == 2
    said = capsys.readouterr().err
    assert "error: cannot write the file: No space left on device" in said
    assert "at: /dev/full" in said


def test_a_home_that_cannot_be_written_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "file" / "home"))
    assert run(monkeypatch, "submit", "--recipe", "cpu-ddp", "--scheduler", "process") == 2
    said = capsys.readouterr().err
    assert "error: Not a directory" in said
    assert str(tmp_path / "file") in said
    assert "TRAINWRIGHT_HOME" in said
