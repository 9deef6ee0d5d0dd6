"""Runs of other frameworks' recipes on this machine, through `trainwright submit` and `resume`, and their steps."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import cache

import pytest
from click.testing import CliRunner

from judges.layered import layered
from judges.pcluster import JudgeMissing
from trainwright.cli.main import cli
from trainwright.runs import store
from trainwright.runs.framework_logs import read_log
from trainwright.runs.log_formats import StepRecord
from trainwright.runs.store import Run

# Horizon-free, so that a run that is extended has the learning rates of one that was longer from the start.
SHORT = ("--warmup", "2", "--schedule", "constant", "--checkpoint-steps", "4")


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    run: Run
    seconds: float

    @property
    def rows(self) -> list[dict[str, float]]:
        """The lines of progress, one per step."""
        path = self.run.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def steps(self) -> list[int]:
        return [int(row["step"]) for row in self.rows]

    @property
    def losses(self) -> list[float]:
        return [row["loss"] for row in self.rows]

    def log(self) -> list[StepRecord]:
        """The steps that our reader finds in what rank 0 printed."""
        return read_log((self.run.folder / "logs" / "rank-0.log").read_text(errors="replace").splitlines())


@cache
def frameworks_venv() -> str:
    """The environment that holds the frameworks; without it a test is skipped, and in CI it fails."""
    try:
        return str(layered("frameworks"))
    except JudgeMissing as missing:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no virtual environment for the frameworks: {missing}")


def train(recipe: str, venv: str, *words: str, processes: int = 2) -> Trained:
    """A recipe from its start, as two processes of this machine."""
    started = ["submit", "--recipe", recipe, "--scheduler", "process", "--processes", str(processes), "--venv", venv]
    return _followed([*started, "--follow", "--", *SHORT, *words])


def resume(trained: Trained, venv: str, *words: str) -> Trained:
    """The same training, further."""
    return _followed(["resume", trained.run.name, "--venv", venv, "--follow", "--", *words])


def _followed(words: list[str]) -> Trained:
    began = time.monotonic()
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, f"{words}\n{done.output[-6000:]}"
    name = next(line for line in done.stdout.splitlines() if line.strip())
    return Trained(store.find(name.strip()), time.monotonic() - began)
