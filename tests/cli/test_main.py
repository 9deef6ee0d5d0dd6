"""The command as a whole: what the system refuses, and what a pipe or a key press cuts short, is no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cli.main import VERBS, main

PREDICT = ["predict", "--model", "llama3-8b", "--instance", "p5.48xlarge"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["trainwright", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("words", [[*PREDICT, "--svg"], ["advise", "--model", "llama3-8b", "--tokens", "1T",
                                   "--instances", "p5", "--nodes", "2", "--spec"]])  # fmt: skip
def test_a_full_disk_is_reported_with_its_path(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words, "/dev/full") == 2
    printed = capsys.readouterr().err
    assert "error: cannot write the file: No space left on device" in printed
    assert "at: /dev/full" in printed


def test_a_home_that_cannot_be_written_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "file" / "home"))
    assert run(monkeypatch, "submit", "--recipe", "cpu-ddp", "--scheduler", "process") == 2
    printed = capsys.readouterr().err
    assert "error: Not a directory" in printed
    assert str(tmp_path / "file") in printed
    assert "TRAINWRIGHT_HOME" in printed


def test_ctrl_c_is_not_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed(*words: object, **flags: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainwright.check.runner.run", pressed)
    assert run(monkeypatch, "check", "README.md") == 130
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_respected(no_color: str, tmp_path: Path) -> None:
    """On a terminal, which only a real one shows."""
    (tmp_path / "spec.yaml").write_text("name: x\nplatform: nowhere\n")
    check = f"{sys.executable} -m trainwright check"
    done = subprocess.run(
        ["script", "-qec", f"{check} {tmp_path}/spec.yaml; {check} nowhere", "/dev/null"],
        capture_output=True, text=True, env={**os.environ, "NO_COLOR": no_color},
    )  # fmt: skip
    assert "TW002" in done.stdout
    assert "no such file or folder" in done.stdout
    assert ("\x1b[" in done.stdout) == (not no_color)


def test_every_verb_has_its_file() -> None:
    folder = Path(__file__).parents[2] / "src/trainwright/cli"
    files = {path.stem for path in folder.glob("*.py") if "\ndef command(" in path.read_text(encoding="utf-8")}
    assert files == set(VERBS)
