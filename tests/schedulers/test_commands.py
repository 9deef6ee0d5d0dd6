"""A job may run any command: once per node, or as one task per rank."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from slurm_bench import Bench, report

from trainwright.cli.main import cli
from trainwright.errors import UserError

PLACE = 'echo "$NODE_RANK of $MASTER_ADDR:$MASTER_PORT" > "$TRAINWRIGHT_RUN/place-$NODE_RANK"'
RANK = 'echo "$RANK of $WORLD_SIZE" > "$TRAINWRIGHT_RUN/rank-$RANK"'


@pytest.mark.slurm
def test_once_per_node_on_slurm(bench: Bench) -> None:
    run = bench.submit_job(command=["bash", "-c", PLACE], launcher="plain", nodes=2, processes=1)
    assert bench.end(run).state == "completed", report(run)
    first, second = ((run.folder / f"place-{rank}").read_text().split() for rank in (0, 1))
    assert (first[0], second[0]) == ("0", "1")
    assert first[2] == second[2]


@pytest.mark.slurm
def test_one_task_per_rank_on_slurm(bench: Bench) -> None:
    run = bench.submit_job(command=["bash", "-c", RANK], launcher="srun", nodes=2, processes=2)
    assert bench.end(run).state == "completed", report(run)
    assert [(run.folder / f"rank-{rank}").read_text() for rank in range(4)] == [f"{rank} of 4\n" for rank in range(4)]


def test_once_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    job = {"name": "own", "nodes": 1, "command": ["bash", "-c", PLACE], "launcher": "plain"}
    spec = {"name": "here", "platform": "local", "queues": [{"name": "q", "nodes": 1, "cpus": 1}], "jobs": [job]}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    words = ["submit", str(path), "--scheduler", "process", "--follow"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "home/runs").glob("own-*")
    assert re.fullmatch(r"0 of 127\.0\.0\.1:2\d{4}\n", (folder / "place-0").read_text())


def submitted(tmp_path: Path, *words: str) -> str:
    spec = {"name": "c", "platform": "slurm", "queues": [{"name": "q", "nodes": 2, "cpus": 8}]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "run.sh").write_text("echo\n")
    done = CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), "--dry-run", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_flags_name_any_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    text = submitted(
        tmp_path, "--command", "--nodes", "2", "--launcher", "plain", "--", "bash", "-c", "echo $NODE_RANK"
    )
    assert "bash -c 'echo $NODE_RANK'" in text
    assert "#SBATCH --job-name=bash" in text
    text = submitted(tmp_path, "--module", "pkg.train", "--nodes", "1", "--processes", "4", "--", "--lr", "1e-4")
    assert "python -m pkg.train --lr 1e-4" in text.replace(" \\\n  ", " ")
    assert "--nproc-per-node=4" in text
    text = submitted(tmp_path, "--script", str(tmp_path / "run.sh"), "--nodes", "1", "--launcher", "srun")
    assert "/code/run.sh" in text
    assert "  bash " in text


def test_a_batch_script_is_adopted_not_run(tmp_path: Path) -> None:
    script = tmp_path / "my.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n")
    with pytest.raises(UserError, match="is a batch script") as error:
        submitted(tmp_path, "--script", str(script))
    assert "trainwright adopt" in error.value.fix


def test_a_script_may_have_any_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    script = tmp_path / "it's my (best) train.py"
    script.write_text("print()\n")
    text = submitted(tmp_path, "--script", str(script), "--nodes", "1")
    assert "#SBATCH --job-name=it-s-my-best-train" in text
