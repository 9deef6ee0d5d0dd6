"""Runs the command lines of predictions in this process."""

from __future__ import annotations

from click.testing import CliRunner

from trainwright.cli.predict import command as predict_command

ISSUE = ["--model", "llama3-70b", "--instance", "p5.48xlarge", "--nodes", "16", "--parallel", "shard=16,tp=8",
         "--sequence", "8192", "--batch", "4M"]  # fmt: skip


def run(*words: str, code: int = 0, of=predict_command):
    result = CliRunner().invoke(of, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result
