"""What of the user's files travels with a run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.runs import code


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project that is in no git repository."""
    root = tmp_path / "project"
    for name in ("train.py", "config.yaml", "mypkg/__init__.py", "mypkg/train.py", "mypkg/run.sh"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("print('trained')\n" if name.endswith(".py") else "echo shell\n")
    for name in (".env", "__pycache__/train.pyc", "venv/pyvenv.cfg", "venv/lib/torch.py", ".git-old/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("not of the project\n")
    return root


def test_without_git_the_tree_around_a_script_travels(tree: Path, tmp_path: Path) -> None:
    code.ship_script(tree / "train.py", tmp_path / "code")
    wanted = {"train.py", "config.yaml", "mypkg/__init__.py", "mypkg/train.py", "mypkg/run.sh"}
    assert files(tmp_path / "code") == wanted


def test_a_script_in_a_large_folder_takes_the_python_beside_it(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(code, "LARGEST", 2**10)
    (tree / "data.bin").write_bytes(bytes(2**11))
    code.ship_script(tree / "train.py", tmp_path / "code")
    assert files(tmp_path / "code") == {"train.py"}
    assert "only the Python files" in capsys.readouterr().err


def submitted(tree: Path, home: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Path, str]:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(home))
    monkeypatch.chdir(tree)
    here = ["--scheduler", "process", "--processes", "1", "--follow"]
    done = CliRunner().invoke(cli, ["submit", *here, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (folder,) = (home / "runs").iterdir()
    return folder, done.output


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--module", "mypkg.train"), "trained"),
        (("--command", "--launcher", "plain", "--", "bash", "mypkg/run.sh"), "shell"),
        (("--command", "--launcher", "plain", "--", "cat", "config.yaml"), "shell"),
    ],
)
def test_a_module_or_command_of_this_folder_travels_too(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], printed: str
) -> None:
    folder, output = submitted(tree, tmp_path / "home", monkeypatch, *words)
    assert printed in output
    assert (folder / "code/mypkg/train.py").is_file()
    spec = yaml.safe_load((folder / "spec.yaml").read_text())
    assert str(folder) not in str(spec["jobs"][0])


@pytest.mark.parametrize(
    "words",
    [("--script", "mypkg/train.py"), ("--command", "--launcher", "plain", "--", "bash", "mypkg/run.sh")],
)
def test_the_spec_of_a_run_is_submitted_again_with_the_code_of_that_run(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tree / "mypkg/data").mkdir()
    (tree / "mypkg/data/.hidden").write_text("tracked by git\n")
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    first, _ = submitted(tree, tmp_path / "home", monkeypatch, *words)
    shutil.rmtree(tree / "mypkg")  # edited since
    here = ["--scheduler", "process", "--follow"]
    done = CliRunner().invoke(cli, ["submit", *here, str(first / "spec.yaml")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (second,) = set((tmp_path / "home/runs").iterdir()) - {first}
    assert files(second / "code") == files(first / "code")
    assert any(".hidden" in name for name in files(second / "code"))


def test_a_command_of_the_nodes_takes_nothing_along(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = submitted(
        tree, tmp_path / "home", monkeypatch, "--command", "--launcher", "plain", "--", "echo", "mypkg"
    )
    assert not (folder / "code").exists()
