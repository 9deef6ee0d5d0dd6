"""The demo: a step that fails says why and the rest goes on; the whole story holds on a real local Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.demo.design import find_and_mend, plan_on_aws
from trainwright.demo.story import Failed, Skipped, Stage, Step, tell
from trainwright.errors import UserError
from trainwright.platforms.local import daemons


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    said: list[str] = []
    return Stage(tmp_path, said.append, lambda text: None, {"said": said})


def raising(error: Exception) -> Step:
    def act(stage: Stage) -> dict[str, object]:
        raise error

    return Step(type(error).__name__, act)


def test_a_step_that_fails_says_why_and_the_rest_goes_on(stage: Stage) -> None:
    steps = [
        raising(Failed("the loss differs")),
        raising(Skipped("no Slurm here")),
        raising(UserError("bad spec", fix="mend it")),
        raising(KeyError("x")),
        Step("last", lambda stage: {"n": 1}),
    ]
    outcomes = tell(steps, stage, lambda number, step: None)
    assert [outcome.status for outcome in outcomes] == ["fail", "skip", "fail", "error", "pass"]
    assert stage.found["said"][0] == "fail: the loss differs"
    assert "KeyError" in outcomes[3].why
    assert outcomes[-1].facts == {"n": 1}


def test_the_planted_mistakes_are_found_mended_and_planned(stage: Stage) -> None:
    facts = find_and_mend(stage)
    assert set(facts["found"]) == {"CAP004", "STO001", "JOB005"}
    assert facts["left"] == 0
    planned = plan_on_aws(stage)
    assert planned["usd_hour"] > 4 * 50
    assert planned["prices"]


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.skipif(bool(daemons.missing_programs()), reason="no Slurm on this machine")
@pytest.mark.timeout(420)
def test_the_whole_story(tmp_path: Path) -> None:
    environment = {**os.environ, "TRAINWRIGHT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "trainwright", "demo"]
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, timeout=400)
    steps = {step["title"]: step for step in json.loads(done.stdout)}
    assert {step["status"] for step in steps.values()} == {"pass"}, done.stderr
    assert steps["Train it again, and kill a node on the way"]["facts"]["same_as_undisturbed"] is True
    subprocess.run([*command, "--clean"], env=environment, check=True, timeout=60)
    assert not (tmp_path / "demo").exists()
