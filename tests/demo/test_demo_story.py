"""The demo: a step that fails gives its reason and the others still run; all steps pass on a real local Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.demo.design import find_and_fix, plan_on_aws
from trainwright.demo.story import Context, Failed, Skipped, Step, run_steps
from trainwright.errors import UserError
from trainwright.platforms.local import daemons


@pytest.fixture
def context(tmp_path: Path) -> Context:
    printed: list[str] = []
    return Context(tmp_path, printed.append, lambda text: None, {"printed": printed})


def raising(error: Exception) -> Step:
    def fail(context: Context) -> dict[str, object]:
        raise error

    return Step(type(error).__name__, fail)


def test_a_step_that_fails_gives_its_reason_and_the_others_run(context: Context) -> None:
    steps = [
        raising(Failed("the loss differs")),
        raising(Skipped("no Slurm here")),
        raising(UserError("bad spec", fix="fix it")),
        raising(KeyError("x")),
        Step("last", lambda context: {"n": 1}),
    ]
    outcomes = run_steps(steps, context, lambda number, step: None)
    assert [outcome.status for outcome in outcomes] == ["fail", "skip", "fail", "error", "pass"]
    assert context.results["printed"][0] == "fail: the loss differs"
    assert "KeyError" in outcomes[3].why
    assert outcomes[-1].facts == {"n": 1}


def test_the_planted_mistakes_are_found_fixed_and_planned(context: Context) -> None:
    facts = find_and_fix(context)
    assert set(facts["found"]) == {"CAP004", "STO001", "JOB005"}
    assert facts["left"] == 0
    planned = plan_on_aws(context)
    assert planned["usd_hour"] > 4 * 50
    assert planned["prices"]


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.skipif(bool(daemons.missing_programs()), reason="no Slurm on this machine")
@pytest.mark.timeout(600)
def test_the_whole_story(tmp_path: Path) -> None:
    environment = {**os.environ, "TRAINWRIGHT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "trainwright", "demo"]
    done = subprocess.run([*command, "--json", "--web"], env=environment, capture_output=True, text=True, timeout=580)
    steps = {step["title"]: step for step in json.loads(done.stdout)}
    assert {step["status"] for step in steps.values()} == {"pass"}, done.stderr
    assert steps["Train it again, and kill a node on the way"]["facts"]["same_as_undisturbed"] is True
    assert steps["Check the health of every node"]["facts"]["checks"] > 0
    assert steps["Measure the collectives"]["facts"]["verdicts"]["correctness"] == "pass"
    report = Path(steps["Write the report: predicted beside measured"]["facts"]["report"])
    assert f"report: {report}" in done.stderr
    assert "Predicted beside measured" in report.read_text()
    assert "live page: http://127.0.0.1:" in done.stderr
    subprocess.run([*command, "--clean"], env=environment, check=True, timeout=60)
    assert not (tmp_path / "demo").exists()
