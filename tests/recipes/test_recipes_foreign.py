"""Recipes of another trainer: the command is filled in, runs under every scheduler, and nothing said is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from resolving import resolution, resolved
from trainwright.cli.main import cli
from trainwright.jobs.foreign import foreign_command
from trainwright.runs import reach, store

RECIPE = {
    "title": "theirs",
    "trainer": {
        "command": ["python3", "-m", "their.trainer", "--iterations={steps}", "--seq", "{sequence}",
                    "--tp", "{tensor}"],
        "container": "example.com/theirs:2",
    },
    "parallel": {"default": {"tp": 2}},
    "sequence": 1024,
    "steps": 500,
}  # fmt: skip


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def test_the_job_goes_over_the_recipe(theirs: Path) -> None:
    job = resolved({"recipe": str(theirs), "steps": 7, "args": ["--fast"]}, 8)
    assert foreign_command(job)[2:] == (
        "their.trainer", "--iterations=7", "--seq", "1024", "--tp", "2", "--fast",
    )  # fmt: skip


def test_a_value_without_a_placeholder_is_refused(theirs: Path) -> None:
    [problem] = resolution({"recipe": str(theirs), "data": "/fsx/c4"}, 8).problems
    assert "no place for `data`" in problem.what
    assert problem.path == ("jobs", 0, "data")
    assert "{data}" in problem.fix


STATED = {
    "parallel": {"tp": 2, "pp": 4},
    "batch": {"sequences": 64, "micro_batch": 2},
    "optimizer": {"lr": 1e-4, "schedule": "wsd", "decay": 5},
    "checkpoint": {"every": "15min", "to": "/fsx/c", "keep": 2},
}


def test_each_value_needs_its_own_placeholder(theirs: Path) -> None:
    command = ["foo", "{tp}", "{micro_batch}", "{lr}", "{checkpoint}"]
    theirs.write_text(yaml.safe_dump({**RECIPE, "trainer": {"command": command}}))
    lost = [".".join(map(str, p.path[2:])) for p in resolution({"recipe": str(theirs), **STATED}, 8).problems]
    assert lost == [
        "batch.sequences", "parallel.pp", "optimizer.schedule", "optimizer.decay", "checkpoint.every",
        "checkpoint.keep",
    ]  # fmt: skip


def test_every_value_has_a_placeholder(theirs: Path) -> None:
    command = ["foo", "{tp}x{pp}", "{samples}", "{micro_batch}", "{lr}", "{schedule}", "{decay}", "{checkpoint}",
               "{checkpoint_every}", "{checkpoint_keep}"]  # fmt: skip
    theirs.write_text(yaml.safe_dump({**RECIPE, "trainer": {"command": command}}))
    job = resolved({"recipe": str(theirs), **STATED}, 8)
    assert foreign_command(job) == ("foo", "2x4", "64", "2", "0.0001", "wsd", "5", "/fsx/c", "900", "2")


def test_the_default_of_checkpoint_every_is_no_value_of_the_job(theirs: Path) -> None:
    theirs.write_text(yaml.safe_dump({**RECIPE, "trainer": {"command": ["foo", "{checkpoint}"]}}))
    assert resolution({"recipe": str(theirs), "checkpoint": {"to": "/fsx/c"}}, 8).problems == ()


def test_a_placeholder_without_a_value_is_refused(theirs: Path) -> None:
    theirs.write_text(yaml.safe_dump({**RECIPE, "trainer": {"command": ["foo", "{decay}"]}}))
    [problem] = resolution({"recipe": str(theirs)}, 8).problems
    assert (problem.path, problem.fix) == (("jobs", 0, "recipe"), "state `optimizer.decay` in the job")


def test_an_unknown_place_gets_a_hint(theirs: Path) -> None:
    theirs.write_text(theirs.read_text().replace("{steps}", "{step}"))
    [problem] = resolution({"recipe": str(theirs)}, 8).problems
    assert "names {step}" in problem.what
    assert problem.fix == "did you mean 'steps'?"


@pytest.mark.parametrize(
    ("platform", "more", "parts"),
    [
        # Pyxis parts a registry's host from the image's name by "#".
        ("parallelcluster", ["--host", "head"], ["-m torch.distributed.run", "example.com#theirs:2"]),
        ("hyperpod", ["--host", "head"], ["-m torch.distributed.run", "example.com#theirs:2"]),
        ("eks", [], ["- torchrun", "example.com/theirs:2"]),
        ("batch", [], ["torchrun --nnodes", "example.com/theirs:2"]),
    ],
)
def test_it_runs_on_every_scheduler(
    theirs: Path, tmp_path: Path, platform: str, more: list[str], parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    spec = {
        "name": "c", "platform": platform, "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2}],
        "storage": [{"mount": "/fsx", "lustre": {}}], "jobs": [{"name": "j", "recipe": "theirs.yaml"}],
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), *more, "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for part in (*parts, "their.trainer", "--iterations=500"):
        assert part in done.stdout, part


SCRIPT = """
import json, os, sys
folder = os.environ["TRAINWRIGHT_RUN"]
print("arguments", sys.argv[1:], flush=True)
if os.environ["RANK"] == "0":
    with open(f"{folder}/result.json", "w") as out:
        json.dump({"world": int(os.environ["WORLD_SIZE"]), "steps": int(sys.argv[1])}, out)
"""


def test_another_trainer_really_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    (tmp_path / "theirs.py").write_text(SCRIPT)
    recipe = {"title": "t", "steps": 9, "trainer": {"command": ["python3", str(tmp_path / "theirs.py"), "{steps}"]},
              "checkpoint": {"steps": 9}}  # fmt: skip
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(recipe))
    words = ["submit", "--recipe", str(tmp_path / "theirs.yaml"), "--scheduler", "process", "--processes", "2"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = store.find(done.stdout.strip())
    deadline = time.monotonic() + 120
    while not (state := reach.run_state(run)).over and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state.state == "completed", (run.folder / "job.log").read_text()
    assert json.loads((run.folder / "result.json").read_text()) == {"world": 2, "steps": 9}
    shown = CliRunner().invoke(cli, ["logs", run.name, "--rank", "1"]).stdout
    assert shown == "[rank-1] arguments ['9']\n"
