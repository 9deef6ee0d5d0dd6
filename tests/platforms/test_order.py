"""From the words of `trainwright submit` to an order, and what each platform refuses by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.recipes.load import header, names
from trainwright.runs.request import SubmitRequest, order_for
from trainwright.runs.submission import plan

SPEC = {
    "name": "big", "platform": "parallelcluster",
    "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2}, {"name": "cpu", "instance": "c5.4xlarge"}],
    "storage": [{"mount": "/fsx", "lustre": {}}],
    "jobs": [{"name": "one", "recipe": "gpt2-124m"}],
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return str(path)


def dry(*words: str) -> str:
    done = CliRunner().invoke(cli, ["submit", *words, "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", names())
def test_the_command_on_top_of_a_recipe_works(name: str, spec: str) -> None:
    """It is run as it stands there, on a cluster of the size that the recipe says it needs."""
    command = re.search(r"Run: +trainwright submit (.*?)(?:  |$)", header(name), re.MULTILINE)
    assert command is not None
    words = [spec if word == "SPEC" else word for word in command[1].split()]
    needs = re.search(r"Needs: +(\d+)", header(name))
    nodes = int(needs[1]) if needs else 1
    size = (f"queues.train.count={nodes}",)
    planned = plan(order_for(SubmitRequest(spec=words[2], recipe=words[1], host="head", overrides=size)))
    assert words[0] == "--recipe"
    assert (planned.run.job, planned.launch.nodes) == (name, nodes)


def test_a_recipe_takes_nodes_queue_and_arguments(spec: str) -> None:
    words = ["--recipe", "cpu-ddp", "--nodes", "1", "--queue", "cpu", "--processes", "2", "--host", "head"]
    done = CliRunner().invoke(cli, ["submit", spec, *words, "--dry-run", "--", "--steps", "7"], catch_exceptions=False)
    assert "#SBATCH --partition=cpu" in done.stdout
    assert "#SBATCH --nodes=1" in done.stdout
    assert done.stdout.count("--steps") == 1, "what the user adds goes over the recipe"
    assert "--steps 7" in done.stdout


def test_a_script_needs_no_spec_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("print(1)\n")
    script = str(tmp_path / "train.py")
    done = CliRunner().invoke(
        cli, ["submit", "--script", script, "--scheduler", "process", "--dry-run", "--", "--lr", "1e-4"]
    )
    assert re.search(r"/code/train\.py( \\\n )? --lr 1e-4\n", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (SubmitRequest(job="one", recipe="cpu-ddp"), "not both"),
        (SubmitRequest(script="t.py", recipe="cpu-ddp"), "two jobs"),
        (SubmitRequest(nodes=2), "--nodes goes with"),
        (SubmitRequest(container="i"), "--container goes with"),
        (SubmitRequest(recipe="cpu-dpp"), "no recipe 'cpu-dpp'"),
        (SubmitRequest(recipe="cpu-ddp", overrides=("platform=eks",)), "runs images, and job 'cpu-ddp' names none"),
        (SubmitRequest(overrides=("platform=hyperpod", "queues.train.exclusive=false")), "does not count GPUs"),
        (SubmitRequest(overrides=("jobs.one.kind=jobset",)), "cannot honour `kind`"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, asked: SubmitRequest, what: str) -> None:
    import dataclasses

    host = "" if "platform=eks" in asked.overrides else "head"
    with pytest.raises(UserError, match=what):
        plan(order_for(dataclasses.replace(asked, spec=spec, host=host)))


def test_hyperpods_slurm_goes_on_by_itself_and_counts_no_gpus(spec: str) -> None:
    text = dry(spec, "--set", "platform=hyperpod", "--host", "head")
    assert "--auto-resume=1" in text
    assert "--gres" not in text
    assert "--auto-resume" not in dry(
        spec, "--set", "platform=hyperpod", "--set", "jobs.one.requeue=false", "--host", "h"
    )
    assert "--gres=gpu:8" in dry(spec, "--host", "head")


def test_nothing_of_this_machine_goes_elsewhere(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("PYTHONPATH", "/only/here")
    container = ["--set", "jobs.one.container=example.com/t:1"]
    for words in (["--host", "head"], ["--set", "platform=eks", *container], ["--set", "platform=batch", *container]):
        text = dry(spec, *words)
        assert "/only/here" not in text
        assert sys.executable not in text
    assert "python3 -m trainwright.train" in dry(spec, *container), "an image has its own interpreter"


@pytest.mark.parametrize("verb", ["up", "down", "status", "connect"])
def test_a_verb_that_a_platform_lacks_is_refused(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({"name": "c", "platform": "slurm", "queues": [{"name": "train"}]}))
    with pytest.raises(UserError, match="does not reach platform slurm yet") as caught:
        CliRunner().invoke(cli, [verb, str(path)], catch_exceptions=False)
    assert "docs/plan.md" in caught.value.fix


@pytest.fixture
def on_the_head_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ParallelCluster's file on its nodes says that this machine is one of them."""
    file = tmp_path / "cfnconfig"
    file.write_text(f"stack_name={SPEC['name']}\n")
    monkeypatch.setattr("trainwright.platforms.parallelcluster.platform.CONFIGURATION", file)


@pytest.mark.usefixtures("on_the_head_node")
def test_data_that_is_only_on_the_head_node_points_there(spec: str) -> None:
    with pytest.raises(UserError, match="does not exist on this machine") as caught:
        CliRunner().invoke(cli, ["submit", spec, "one", "--set", "jobs.one.data=/fsx/tokens"], catch_exceptions=False)
    assert "--host user@head" in caught.value.fix


@pytest.mark.parametrize(
    ("recipe", "message"), [("gpt2-124m", " tokens/s, "), ("llama3-70b", "predicted: it runs out of memory (")]
)
def test_submit_prints_the_prediction_first(spec: str, recipe: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["submit", spec, "--recipe", recipe, "--nodes", "1", "--host", "head", "--dry-run"])
    assert message in done.stderr
    assert message not in done.stdout


@pytest.mark.usefixtures("on_the_head_node")
def test_a_head_node_puts_the_run_where_its_nodes_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted on the head node itself: plan, dry run and submission name one folder, on the shared file system."""
    from trainwright.runs import submission
    from trainwright.schedulers.base import JobIdentity
    from trainwright.schedulers.slurm import SlurmScheduler

    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    path = tmp_path / "spec.yaml"
    # The runtime that a plan makes is on a real head node only.
    path.write_text(yaml.safe_dump({**SPEC, "runs": str(tmp_path / "fsx"), "software": {"runtime": "none"}}))
    monkeypatch.setattr(SlurmScheduler, "submit", lambda *_: JobIdentity("7"))
    order = order_for(SubmitRequest(spec=str(path), overrides=("jobs.one.data=builtin:stdlib",)))
    run = submission.submit(order, submission.plan(order))
    assert run.where == str(tmp_path / "fsx" / run.name)
    assert (Path(run.where) / "job.sbatch").read_text() == (run.folder / "job.sbatch").read_text()
    assert (Path(run.where) / "code" / "trainwright" / "train").is_dir()
    assert Path(run.where).stat().st_mode & 0o777 == 0o700
