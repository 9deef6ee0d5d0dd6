"""Which run a word on the command line means; a word that may mean two is no reason to end one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.runs import reach, store
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, State

CANCELLED: list[str] = []


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three runs of two clusters."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    places = {"train-1-aaaa": "a", "train-2-bbbb": "b", "other-3-cccc": "a"}
    for number, (name, cluster) in enumerate(places.items()):
        run = Run(name, name.partition("-")[0], "slurm", "local", cluster, created=float(number))
        run.folder.mkdir(parents=True)
        store.write(dataclasses.replace(run, job_id="1" if name.startswith("train") else "2"))
    return list(places)


@pytest.fixture
def states(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, State]:
    """Their states, which may be changed. Only for `cancel`: other verbs would keep the replaced functions."""
    said: dict[str, State] = dict.fromkeys(runs, "running")
    CANCELLED.clear()
    monkeypatch.setattr(reach, "run_state", lambda run: JobStatus(run.job_id, run.name, said[run.name], "slurm"))
    monkeypatch.setattr(reach, "cancel", lambda run: CANCELLED.append(run.name))
    return said


def cancel(*words: str) -> None:
    CliRunner().invoke(cli, ["cancel", *words], catch_exceptions=False)


@pytest.mark.parametrize("verb", ["cancel", "resume", "logs", "runs"])
def test_an_empty_word_names_no_run(runs: list[str], verb: str) -> None:
    """`cancel "$RUN"` with a variable that is not set must not end the newest run."""
    with pytest.raises(UserError, match="no run is named"):
        CliRunner().invoke(cli, [verb, ""], catch_exceptions=False)


@pytest.mark.parametrize("word", ["train", "1"])
def test_cancel_does_not_choose_between_two_runs(states: dict[str, State], word: str) -> None:
    with pytest.raises(UserError, match=r"train-2-bbbb \(b\), train-1-aaaa \(a\)"):
        cancel("other", word)
    assert CANCELLED == []
    states["train-2-bbbb"] = "completed"
    cancel(word)
    assert CANCELLED == ["train-1-aaaa"]


def test_cancel_takes_a_name_a_start_that_fits_one_and_last(states: dict[str, State]) -> None:
    cancel("train-1-aaaa", "train-2", "last")
    assert CANCELLED == ["train-1-aaaa", "train-2-bbbb", "other-3-cccc"]
