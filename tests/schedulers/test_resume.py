"""`trainwright resume`: what is continued, from where, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from slurm_bench import metrics, report

from trainwright.cli.main import cli
from trainwright.platforms.local import daemons, life
from trainwright.platforms.local.daemons import missing_programs
from trainwright.runs import history, reach, store
from trainwright.runs.resume import NothingToResume, ResumeRequest, prepare
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus, State

JOB = """\
jobs:
  - name: tiny
    model: llama3.2-1b-debug
    nodes: 1
    sequence: 32
    batch: {sequences: 4}
    steps: 40
    checkpoint: {steps: 4}
    data: builtin:stdlib
"""
HERE = "name: {name}\nplatform: local\nqueues: [{{name: train, nodes: {nodes}, cpus: 1}}]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    return tmp_path


def past_run(state: State, step: int | None = 8, job: str = JOB, **fields: object) -> Run:
    """A run folder as an earlier submission left it."""
    run = Run("tiny-1", "tiny", "process", "local", job_id="tiny-1", created=time.time(), steps=40, **fields)
    (run.folder / "checkpoints").mkdir(parents=True)
    (run.folder / "spec.yaml").write_text(HERE.format(name="here", nodes=2) + job)
    if step is not None:
        (run.folder / "checkpoints" / f"step-{step:08d}").mkdir()
    store.write(run)
    store.remember(run, JobStatus(run.job_id, run.name, state, "process"), None)
    return run


def tell(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert done.exit_code == code, f"{words}: {done.stdout}\n{done.stderr}"
    return done


@pytest.mark.parametrize("state", ["failed", "cancelled", "timeout", "node-failed", "lost"])
def test_an_ended_run_goes_on_from_its_newest_checkpoint(home: Path, state: State) -> None:
    run = past_run(state)
    resumption = prepare(run, ResumeRequest(args=("--log-every", "2")))
    assert resumption.step == 8
    command = " ".join(resumption.planned.launch.command)
    assert f"--checkpoint-to {run.folder}/checkpoints" in command
    assert command.endswith("--log-every 2")
    assert resumption.planned.run.continues == run.name
    assert not resumption.planned.run.folder.exists(), "to prepare leaves nothing behind"


@pytest.mark.parametrize(("state", "words"), [("running", "is running"), ("completed", "completed")])
def test_what_is_not_over_or_done_is_not_resumed(home: Path, state: State, words: str) -> None:
    run = past_run(state)
    (run.folder / "pid").write_text("1 gone\n")
    if state == "running":
        import os

        from trainwright.schedulers.process import _start_time

        (run.folder / "pid").write_text(f"{os.getpid()} {_start_time(os.getpid())}\n")
    with pytest.raises(NothingToResume, match=words):
        prepare(run, ResumeRequest())


def test_following_to_a_bad_end_says_how_to_continue(home: Path) -> None:
    run = past_run("failed")
    followed = tell("logs", "-f", run.name, code=1)
    assert f"  continue from step 8: trainwright resume {run.name}" in followed.stderr


def test_a_run_without_a_checkpoint_starts_anew_instead(home: Path) -> None:
    with pytest.raises(NothingToResume, match="has no checkpoint at") as caught:
        prepare(past_run("failed", step=None), ResumeRequest())
    assert "trainwright submit" in caught.value.fix


def test_a_script_finds_the_checkpoints_of_the_run_it_continues(home: Path) -> None:
    run = past_run("failed", job="jobs: [{name: tiny, script: tools/train.py, nodes: 1}]\n")
    (run.folder / "code").mkdir()
    (run.folder / "code/train.py").write_text("print(1)\n")
    launch = prepare(run, ResumeRequest()).planned.launch
    assert ("TRAINWRIGHT_CHECKPOINTS", f"{run.folder}/checkpoints") in {(v.name, v.value) for v in launch.environment}
    assert launch.command[1].endswith("/code/train.py")


def test_a_run_goes_on_where_its_recipe_keeps_checkpoints(home: Path) -> None:
    run = past_run("failed", step=None)
    kept = home / "shared check points"
    (kept / "step-00000012").mkdir(parents=True)
    (run.folder / "resolved.json").write_text(json.dumps({"values": {"checkpoint to": {"value": str(kept)}}}))
    resumption = prepare(run, ResumeRequest())
    assert (resumption.step, resumption.checkpoints) == (12, str(kept))


def test_an_unknown_run_is_resumed_only_by_force(home: Path) -> None:
    run = past_run("running")
    (run.folder / "last_seen.json").unlink()
    with pytest.raises(NothingToResume, match="is unknown") as caught:
        prepare(run, ResumeRequest())
    assert "--force" in caught.value.fix
    assert prepare(run, ResumeRequest(force=True)).step == 8


def test_a_chain_is_one_training_with_its_goodput(home: Path) -> None:
    first = past_run("cancelled", submitted=1000.0)
    lines = [{"step": step, "step_s": 1.0, "time": 1000.0 + step, "loss": 9.0} for step in range(1, 11)]
    (first.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    second = Run("tiny-2", "tiny", "process", "local", job_id="tiny-2", created=first.created + 1, continues="tiny-1")
    second.folder.mkdir()
    # Steps 9 and 10 are done again after a pause of ten seconds.
    lines = [{"step": step, "step_s": 1.0, "time": 1011.0 + step, "loss": 8.0} for step in range(9, 21)]
    (second.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    store.write(second)
    store.remember(second, JobStatus("tiny-2", "tiny-2", "completed", "process"), None)
    [training] = json.loads(tell("runs", "--json").stdout)
    assert (training["run"], training["continues"], training["step"]) == ("tiny-2", ["tiny-1"], 20)
    assert training["goodput"] == pytest.approx(20 / 31), "20 seconds of steps that count, in 31"
    assert [fact["run"] for fact in history.newest(9, all_of_them=True)] == ["tiny-2", "tiny-1"]
    assert "65%" in tell("runs").stdout


def test_a_list_reads_only_the_end_of_a_long_run(home: Path) -> None:
    run = past_run("completed")
    lines = (json.dumps({"step": n, "loss": 2.0, "tokens_per_s": 100.0 + (n > 40_000) * 50}) for n in range(1, 50_001))
    (run.folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    began = time.process_time()
    [fact] = history.newest(1)
    assert time.process_time() - began < 0.5
    assert (fact["step"], fact["tokens_per_s"]) == (50_000, 150.0)


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_a_lost_run_goes_on_elsewhere_with_the_same_loss(module_home: Path, tmp_path: Path) -> None:
    """A run is lost with its cluster and goes on at another one, on two nodes; its loss is that of a run that was not
    disturbed."""
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    for name, nodes in (("first", 1), ("second", 2)):
        (tmp_path / f"{name}.yaml").write_text(HERE.format(name=name, nodes=nodes) + JOB)
    tell("up", str(tmp_path / "first.yaml"))
    whole = store.find(tell("submit", str(tmp_path / "first.yaml")).stdout.strip())
    daemons.wait_for(lambda: reach.run_state(whole).over, "the undisturbed run ends", Path(), 120)
    lost = store.find(tell("submit", str(tmp_path / "first.yaml")).stdout.strip())
    daemons.wait_for(lambda: len(metrics(lost)) > 10, "it has a checkpoint", Path(), 120)
    assert f"job {lost.job_id} {lost.name}" in CliRunner().invoke(cli, ["down", "first"]).exception.what  # type: ignore[union-attr]
    tell("down", "first", "--force")
    tell("up", str(tmp_path / "second.yaml"))
    new = store.find(tell("resume", lost.name, "--spec", str(tmp_path / "second.yaml"), "--nodes", "2").stdout.strip())
    daemons.wait_for(lambda: reach.run_state(new).over, "the run ends", Path(), 120)
    assert reach.run_state(new).state == "completed", report(new)
    assert (new.cluster, new.nodes, new.ranks) == ("second", 2, 2)
    curve = {line["step"]: line["loss"] for run in (lost, new) for line in map(json.loads, metrics(run))}
    expected = {line["step"]: line["loss"] for line in map(json.loads, metrics(whole))}
    assert sorted(curve) == sorted(expected)
    assert curve == pytest.approx(expected, rel=1e-4), "two ranks add in another order"
    assert json.loads(metrics(new)[0])["step"] > 4, "it went on from a checkpoint"
    [training] = [fact for fact in json.loads(tell("runs", "--json").stdout) if fact["run"] == new.name]
    assert (training["continues"], training["step"], training["state"]) == ([lost.name], 40, "completed")
    assert 0 < training["goodput"] < 1
    assert "lost" in tell("runs", lost.name).stdout
    life.down("second", force=True)
