"""`submit --profile`: which command a rank runs, and what it does with Nsight Systems there and without it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.schedulers.base import Launch
from trainwright.schedulers.profiling import CARRIED, parse_profile, profiled
from trainwright.train.profile import ASKED

ROOT = Path(__file__).parents[2]
NSYS = """#!/bin/bash
echo "nsys $*" >> "$NOTES"
while [ "${1#-}" != "$1" ] || [ "$1" = profile ]; do shift; done
exec "$@"
"""
LAUNCH = Launch("job", ("python3", "train.py", "--lr", "1"), Path("/fsx/runs/x"))


@pytest.mark.parametrize(
    ("words", "what"),
    [("steps=0..3", "count from 1"), ("steps=1..40", "at most 20"), ("step=1", "none of"), ("tool=x", "torch or nsys"),
     ("ranks=a", "by number"), ("delay=soon", "soon"), ("nodes=x", "no list")],
)  # fmt: skip
def test_wrong_words_are_named(words: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as error:
        parse_profile(words)
    assert "steps=10..12 ranks=0,8" in error.value.fix


@pytest.mark.parametrize(
    ("words", "what"),
    [("ranks=0,9", "no rank 9: this job has 1"), ("tool=nsys nodes=2", "no node 2: this job has 1"),
     ("steps=11..12", "the job ends after step 10"), ("steps=10..12", "")],
)  # fmt: skip
def test_what_the_job_does_not_have_cannot_be_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, what: str
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    line = ["submit", "--recipe", "cpu-ddp", "--scheduler", "process", "--dry-run", "--profile", words]
    done = CliRunner().invoke(cli, [*line, "--", "--steps", "10"])
    assert (what in str(done.exception)) if what else (done.exit_code == 0), done.output


@pytest.mark.parametrize(("ranks", "what"), [("foo", "'foo' names no ranks"), ("7", "no rank 7: this run has 1")])
def test_a_live_run_is_not_asked_for_ranks_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: str, what: str
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    folder = tmp_path / "runs" / "live-1"
    folder.mkdir(parents=True)
    facts = {"name": "live-1", "job": "live", "scheduler": "process"}
    (folder / "run.json").write_text(json.dumps(facts))
    refused = CliRunner().invoke(cli, ["profile", "live-1", "--ranks", ranks])
    assert what in str(refused.exception), refused.output
    assert not (folder / ASKED).exists()


def test_our_trainer_and_scripts_use_torch_and_others_nsight() -> None:
    order = parse_profile("steps=3..4 ranks=0,8")
    own = profiled(LAUNCH, order, own_trainer=True, carries=True)
    assert own.command[-2:] == ("--profile", "steps=3..4 ranks=0,8")
    script = profiled(LAUNCH, order, own_trainer=False, carries=True)
    assert script.command == ("python3", f"/fsx/runs/x/code/{CARRIED}", "train.py", "--lr", "1")
    assert ("TRAINWRIGHT_PROFILE", "steps=3..4 ranks=0,8") in {(e.name, e.value) for e in script.environment}
    image = profiled(LAUNCH, order, own_trainer=False, carries=False)
    assert image.command[:2] == ("bash", "-c")
    with pytest.raises(UserError, match="has none"):
        profiled(LAUNCH, parse_profile("tool=torch"), own_trainer=False, carries=False)


def run_wrapped(tmp_path: Path, rank: str, node: str = "0", nsys: bool = True) -> tuple[str, str]:
    """Run what a rank runs; the stand-in for nsys notes how it was called and runs the command."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "nsys"
    program.write_text(NSYS)
    program.chmod(0o755)
    if not nsys:
        program.unlink()
    order = parse_profile("ranks=0,8 nodes=2 delay=2min duration=5s")
    launch = profiled(Launch("job", ("echo", "a b", "$HOME"), tmp_path), order, own_trainer=False, carries=False)
    variables = {line.name: line.value for line in launch.environment}
    notes = tmp_path / "notes"
    notes.write_text("")
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "RANK": rank,
        "GROUP_RANK": node,
        "NOTES": str(notes),
        **variables,
    }
    done = subprocess.run(
        launch.command,
        env={**environment, "TRAINWRIGHT_RUN": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a b $HOME\n"
    return notes.read_text(), done.stderr


def test_nsight_profiles_the_chosen_ranks_and_nodes_only(tmp_path: Path) -> None:
    called, _ = run_wrapped(tmp_path, "8")
    words = shlex.split(called)
    assert words[:2] == ["nsys", "profile"]
    assert {"--delay=120", "--duration=5", "--kill=none"} <= set(words)
    assert f"--output={tmp_path}/profile/rank-00008" in words
    assert run_wrapped(tmp_path, "7")[0] == ""
    assert "rank-00017" in run_wrapped(tmp_path, "17", node="2")[0]


def test_without_nsight_the_command_runs_and_says_so(tmp_path: Path) -> None:
    called, said = run_wrapped(tmp_path, "0", nsys=False)
    assert called == ""
    assert "rank 0 is not profiled" in said


def test_submit_takes_the_words_without_quotes() -> None:
    spec = str(ROOT / "examples/p5-reservation.yaml")
    words = ["submit", spec, "--recipe", "llama3.1-8b", "--nodes", "4", "--host", "head", "--dry-run"]
    done = CliRunner().invoke(cli, [*words, "--profile", "steps=10..12", "ranks=0,8", "--", "--lr", "1e-4"])
    assert done.exit_code == 0, done.output
    assert "--profile 'steps=10..12 ranks=0,8'" in done.stdout
    assert "--lr 1e-4" in done.stdout


def test_a_script_of_any_kind_is_profiled_by_its_optimizer(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        "import sys, torch\nlayer = torch.nn.Linear(64, 64)\noptimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "for batch in torch.utils.data.DataLoader(torch.randn(48, 64), batch_size=8):\n"
        "    layer(batch).square().mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "print(sys.argv[1:], __name__)\n"
    )
    profiler = ROOT / "src/trainwright/train/profile.py"
    environment = {
        **os.environ,
        "TRAINWRIGHT_RUN": str(tmp_path),
        "TRAINWRIGHT_PROFILE": "steps=3..5",
        "PYTHONPATH": "",
    }
    words = [sys.executable, str(profiler), str(script), "--own", "1"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "['--own', '1'] __main__\n"

    from trainwright.predict.trace import profile_of, read_trace

    profile = profile_of(read_trace(tmp_path / "profile/rank-00000.json.gz"))
    assert (profile.device, profile.steps, profile.ranks) == ("cpu", 3, 1)
    assert {kernel.name for kernel in profile.kernels} & {"aten::addmm", "aten::mm"}
    assert profile.data_wait_s > 0


@pytest.mark.slow
def test_a_live_run_of_two_ranks_is_asked_for_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes over gloo: asked while they train, and summed up by rank."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))

    def call(*words: str) -> str:
        done = CliRunner().invoke(cli, list(words))
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    words = ["--recipe", "llama3.2-1b-debug", "--scheduler", "process", "--processes", "2"]
    run = call(
        "submit", *words, "--", "--steps", "100000", "--sequence", "64", "--batch", "4", "--parallel", "shard=2"
    ).strip()
    try:
        facts = json.loads(call("profile", run, "--steps", "2", "--ranks", "0,1", "--json"))
        assert [(row["rank"], row["ranks"], row["steps"]) for row in facts["ranks"]] == [(0, 2, 2), (1, 2, 2)]
        for row in facts["ranks"]:
            assert sum(term["measured_s"] for term in row["terms"]) == pytest.approx(row["step_s"])
            assert row["exposed_s"] > 0
            assert any(kernel["kind"] == "communication" for kernel in row["kernels"])
        assert json.loads((tmp_path / "runs" / run / "profile/summary.json").read_text()) == facts
        assert "exposed communication" in call("profile", run)  # not asked again
    finally:
        call("cancel", run)
