"""The frameworks' own readers take the configuration files that we write, and refuse what they would refuse by hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from framework_runs import frameworks_venv
from test_frameworks import written_for

from resolving import loaded
from trainwright.jobs.frameworks import framework_launch
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.resolved import ResolvedJob
from trainwright.recipes.load import foreign_names, recipe
from trainwright.recipes.model import Foreign

pytestmark = pytest.mark.slow
PARSERS = {"torchtitan": "torchtitan", "megatron-deepspeed": "deepspeed"}
FOLDER = Path("/fsx/runs/r-1")


def named(framework: str) -> list[str]:
    """The recipes of a framework, at both sizes."""
    trainers = {name: recipe(name).trainer for name in foreign_names()}
    of_it = [name for name, one in trainers.items() if isinstance(one, Foreign) and one.framework == framework]
    return [f"{name}{size}" for name in of_it for size in ("", "-debug")]


NAMES = {framework: named(framework) for framework in PARSERS}


def job_of(name: str) -> ResolvedJob:
    return resolve_job(loaded(written_for(name))).require()


def asked(name: str, framework: str) -> dict[str, Any]:
    job = job_of(name)
    assert job.training is not None
    [text] = [text for file, text in framework_launch(job, FOLDER, FOLDER / "code").files.items() if ".py" not in file]
    return {"parser": PARSERS[framework], "text": text, "ranks": job.training.plan.data}


def judged(questions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    python = Path(frameworks_venv()) / "bin/python"
    command = [str(python), str(Path(__file__).with_name("framework_parsers.py"))]
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=True)
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """One process reads them all."""
    questions = {name: asked(name, framework) for framework, names in NAMES.items() for name in names}
    file, batch = questions["torchtitan-llama3.1-8b"], questions[NAMES["megatron-deepspeed"][0]]
    questions["wrong key"] = {**file, "text": file["text"].replace("seq_len", "sequence_length")}
    questions["wrong batch"] = {**batch, "ranks": batch["ranks"] * 2}
    return judged(questions)


@pytest.mark.proves("parsed")
@pytest.mark.parametrize("recipe", NAMES["torchtitan"])
def test_torchtitan_reads_our_file(recipe: str, answers: dict[str, Any]) -> None:
    assert answers[recipe].get("value", answers[recipe])["steps"] == job_of(recipe).training.steps  # type: ignore[union-attr]


@pytest.mark.proves("parsed")
@pytest.mark.parametrize("recipe", NAMES["megatron-deepspeed"])
def test_deepspeed_agrees_with_our_batch(recipe: str, answers: dict[str, Any]) -> None:
    training = job_of(recipe).training
    assert training is not None
    value = answers[recipe].get("value", answers[recipe])
    assert (value["batch"], value["micro_batch"]) == (training.batch, training.micro_batch or 1)


def test_a_wrong_file_is_refused(answers: dict[str, Any]) -> None:
    assert "sequence_length" in answers["wrong key"]["error"]
    assert "train_batch_size" in answers["wrong batch"]["error"]
