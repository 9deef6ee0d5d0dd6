"""`check` as a gate of a pipeline: what it did not read, was not asked or could not do is never reported as clean."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli

WRONG_SBATCH = "#!/bin/bash\n#SBATCH --nodes=4\nsrun torchrun --nnodes=2 --nproc_per_node=8 train.py\n"


def run(*words: str, stdin: str | None = None) -> tuple[int, str]:
    """Exit status and output; an exception that would be a traceback is raised here."""
    outcome = CliRunner().invoke(cli, ["check", *words], input=stdin)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        from trainwright.errors import UserError

        if not isinstance(outcome.exception, UserError):
            raise outcome.exception
        return outcome.exception.status, str(outcome.exception)
    return outcome.exit_code, outcome.output


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with one commit and, since then, one changed file with a mistake."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.sbatch").write_text("#!/bin/bash\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    (folder / "train.sbatch").write_text(WRONG_SBATCH)
    return folder


@pytest.mark.parametrize("revision", ["--output=../precious", "-O../precious", "HEAD...--output=../precious", "nope"])
def test_a_revision_is_never_an_option_of_git(repository: Path, revision: str) -> None:
    precious = repository.parent / "precious"
    precious.write_text("keep me")
    code, _ = run(".", "--diff", revision)
    assert (code, precious.read_text()) == (2, "keep me")


@pytest.mark.parametrize("revision", ["HEAD", "HEAD...", "HEAD..HEAD"])
def test_a_revision_or_two_are_accepted(repository: Path, revision: str) -> None:
    code, output = run(".", "--diff", revision)
    assert code == (1 if revision == "HEAD" else 0), output


def test_the_users_own_git_configuration_hides_nothing(repository: Path) -> None:
    for key in ("diff.noprefix", "diff.relative"):
        subprocess.run(["git", "config", key, "true"], check=True)
    assert run(".", "--diff", "HEAD")[0] == 1
