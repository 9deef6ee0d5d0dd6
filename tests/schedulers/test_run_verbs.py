"""The verbs of job life as a new user types them, on a real local Slurm."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from counting_jobs import COUNTING
from trainwright.platforms.local.daemons import missing_programs

pytestmark = pytest.mark.slurm
SPEC = """\
name: verbs
platform: local
queues: [{name: train, nodes: 2, cpus: 2}]
jobs:
  - {name: count, script: counting.py, args: [--steps=6], nodes: 2, steps: 6}
  - {name: long, script: counting.py, args: [--steps=100000], nodes: 1}
"""
Verb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def trainwright(module_home: Path, tmp_path: Path) -> Verb:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    (tmp_path / "spec.yaml").write_text(SPEC)
    shutil.copy(COUNTING, tmp_path)

    def verb(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "trainwright", *words], capture_output=True, text=True, cwd=tmp_path, timeout=120
        )
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    return verb


def test_from_up_to_down(trainwright: Verb) -> None:
    trainwright("up", "spec.yaml")
    status = json.loads(trainwright("status", "verbs", "--json").stdout)
    assert status["queues"][0]["states"] == {"idle": 2}
    assert "train-2" in trainwright("status", "--nodes").stdout
    assert trainwright("connect", "verbs", "--", "sinfo", "-hN", "-o", "%N").stdout.split() == ["train-1", "train-2"]

    followed = trainwright("submit", "spec.yaml", "count", "--follow")
    name = followed.stdout.split()[0]
    assert "[rank-0] rank 0 of 2 on train-1 starts at step 0" in followed.stdout
    assert "step 6/6" in followed.stderr
    assert "completed, exit status 0" in followed.stderr
    assert "[rank-1]" not in trainwright("logs", "--rank", "0").stdout

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    second = json.loads(trainwright("submit", "spec.yaml", "long", "--json").stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Time on the processor: what the machine does beside this test does not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.9
    jobs = json.loads(trainwright("jobs", "--json").stdout)
    assert [(job["id"], job["cluster"]) for job in jobs] == [(second["job_id"], "verbs")]
    assert "not waiting" in trainwright("jobs", "--why", second["name"]).stdout or jobs[0]["state"] == "pending"
    trainwright("cancel", second["name"])
    assert "cancelled" in trainwright("logs", "-f", second["name"], code=1).stderr

    assert name in trainwright("runs").stdout
    both = trainwright("runs", name, second["name"]).stdout
    assert "completed" in both
    assert "cancelled" in both
    trainwright("down", "verbs")
    facts = {fact["run"]: fact["state"] for fact in json.loads(trainwright("runs", "--json").stdout)}
    assert facts[name] == "completed", "the run folder knows the end when the cluster is gone"
    assert facts[second["name"]] == "cancelled"


def test_a_run_that_died_says_who_died_and_of_what(trainwright: Verb, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os\nif os.environ['RANK'] == '1': raise ValueError('no such data')\n")
    words = ("submit", "--script", "dies.py", "--scheduler", "process", "--processes", "2", "--follow")
    followed = trainwright(*words, code=1)
    name = followed.stdout.split()[0]
    assert "why: rank 1: ValueError: no such data" in followed.stderr
    assert f"see: trainwright logs {name} --rank 1" in followed.stderr
    facts = json.loads(trainwright("runs", name, "--json").stdout)
    assert facts["failed by"] == ["rank 1: ValueError: no such data"]
    assert Path(facts["folder"][0], "run.json").is_file()
    assert "is over already: failed" in trainwright("cancel", name).stderr
    assert "rank 9 printed nothing" in trainwright("logs", name, "--rank", "9").stderr
    ends = trainwright("logs", name, "--tail", "1").stdout.splitlines()
    assert "[rank-1] ValueError: no such data" in ends
    assert len({line.partition("]")[0] for line in ends}) == len(ends)


def test_mistakes_are_told_in_three_parts(trainwright: Verb) -> None:
    for words, said in {
        ("submit", "spec.yaml"): "has 2 jobs",
        ("submit", "spec.yaml", "cuont"): "did you mean 'count'?",
        ("submit", "spec.yaml", "count"): "no local cluster 'verbs'",
        ("down", "nothing"): "no local cluster 'nothing'",
        ("logs", "nothing-such"): "no run",
        ("submit", "spec.yaml", "--script", "no.py", "--scheduler", "process"): "no script",
    }.items():
        done = trainwright(*words, code=2)
        assert said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    refused = trainwright("submit", "spec.yaml", "long", "--set", "jobs.long.time=1h", "--scheduler", "process", code=1)
    assert "the process scheduler cannot honour `time`" in refused.stderr


def test_a_dry_run_leaves_nothing(trainwright: Verb, module_home: Path) -> None:
    (module_home / "runs").mkdir(exist_ok=True)
    before = sorted(os.listdir(module_home / "runs"))
    script = trainwright("submit", "spec.yaml", "long", "--scheduler", "process", "--dry-run").stdout
    assert script.startswith("#!/bin/bash")
    explained = trainwright("submit", "spec.yaml", "long", "--scheduler", "process", "--explain").stdout
    assert "OMP_NUM_THREADS=2" in explained
    assert "a rank has 2 processors" in explained
    assert sorted(os.listdir(module_home / "runs")) == before
