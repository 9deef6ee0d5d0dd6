"""A model that a file describes: the file travels with the run, since the nodes do not have the user's folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.jobs.resolve import resolve_job
from trainwright.runs import resume, submission
from trainwright.runs.submission import Order
from trainwright.schedulers.process import ProcessScheduler
from trainwright.spec.load import LoadedSpec, load
from trainwright.train.config import parse_arguments
from trainwright.train.models.hf_config import config_of
from trainwright.train.models.shape import lookup

LOCAL = "name: here\nplatform: local\nqueues: [{name: q, nodes: 1, cpus: 1}]\n"
EKS = (
    "name: c\nplatform: eks\nregion: us-east-2\nqueues: [{name: q, instance: p5.48xlarge, count: 1}]\n"
    "storage: [{mount: /fsx, lustre: {}}]\n"
)
SMALL = "llama3.2-1b-debug"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir("/")
    config = json.dumps(config_of(lookup(SMALL), "bfloat16"))
    (tmp_path / "mine").mkdir()
    for name in ("tiny.json", "mine/config.json"):
        (tmp_path / name).write_text(config)
    return tmp_path


def written(folder: Path, spec: str = LOCAL, **job: Any) -> LoadedSpec:
    path = folder / "spec.yaml"
    path.write_text(f"{spec}jobs: [{json.dumps({'name': 'j', **job})}]\n")
    return load(path)


def filled(loaded: LoadedSpec) -> submission.Planned:
    """The run folder of the job, as `submit` makes it."""
    order = Order(loaded, resolve_job(loaded, scheduler="process").require(), ProcessScheduler())
    planned = submission.plan(order)
    planned.run.folder.mkdir(parents=True)
    submission.fill_folder(order, planned)
    return planned


@pytest.mark.parametrize(("model", "name"), [("tiny.json", "tiny"), ("mine/config.json", "mine"), ("mine", "mine")])
def test_the_file_travels_and_the_trainer_reads_the_copy(folder: Path, model: str, name: str) -> None:
    planned = filled(written(folder, model=model))
    command = planned.launch.command
    options = parse_arguments(list(command[command.index("trainwright.train") + 1 :]))
    copy = planned.run.folder / "code" / f"{name}.json"
    assert options.model == str(copy)
    for source in ("tiny.json", "mine/config.json"):
        (folder / source).unlink()
    shape = lookup(options.model)
    assert (shape.name, shape.hidden, shape.layers) == (name, lookup(SMALL).hidden, lookup(SMALL).layers)


def test_a_resumed_run_takes_the_copy_of_the_first(folder: Path) -> None:
    run = filled(written(folder, model="tiny.json", steps=5)).run
    (folder / "tiny.json").unlink()
    again = resume.resumed_spec(run, resume.ResumeRequest())
    assert filled(again).run.folder != run.folder


@pytest.mark.parametrize("args", [["--model", "tiny.json"], ["--lr", "1e-4", "--model=tiny.json"]])
def test_a_model_among_the_arguments_travels_too(folder: Path, args: list[str]) -> None:
    planned = filled(written(folder, model=SMALL, args=args, steps=5))
    copy = planned.run.folder / "code/tiny.json"
    (folder / "tiny.json").unlink()
    command = planned.launch.command
    assert parse_arguments(list(command[command.index("trainwright.train") + 1 :])).model == str(copy)
    (folder / "other.yaml").write_text(LOCAL)
    again = filled(resume.resumed_spec(planned.run, resume.ResumeRequest(spec=str(folder / "other.yaml"))))
    assert (again.run.folder / "code/tiny.json").read_text() == copy.read_text()


def test_a_model_that_cannot_be_read_here_is_refused_by_its_name(folder: Path) -> None:
    problems = resolve_job(written(folder, args=["--model", "/fsx/elsewhere.json"])).problems
    assert (problems[0].path, "/fsx/elsewhere.json" in problems[0].what) == (("jobs", 0, "args"), True)


def test_a_named_model_is_passed_by_its_name(folder: Path) -> None:
    command = filled(written(folder, model=SMALL)).launch.command
    assert command[command.index("--model") + 1] == SMALL


def test_an_image_cannot_get_the_file(folder: Path) -> None:
    (problem,) = resolve_job(written(folder, EKS, model="tiny.json", container="image:1")).problems
    assert (problem.code, problem.path) == ("SPC004", ("jobs", 0, "model"))
    assert "cannot be sent along" in problem.what


def test_what_the_trainer_refuses_is_refused_before_the_queue(folder: Path) -> None:
    config = json.loads((folder / "tiny.json").read_text())
    (folder / "tiny.json").write_text(json.dumps({**config, "mystery": 3}))
    (problem,) = resolve_job(written(folder, model="tiny.json")).problems
    assert "unknown key 'mystery'" in problem.what


@pytest.mark.parametrize("field", ["model", "recipe"])
def test_a_name_longer_than_any_file_s_is_no_traceback(folder: Path, field: str) -> None:
    (problem,) = resolve_job(written(folder, **{field: 5000 * "a"})).problems
    assert problem.path == ("jobs", 0, field)
