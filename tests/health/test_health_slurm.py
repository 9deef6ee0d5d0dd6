"""Health on a real local Slurm: a prolog that fails drains its node and the job runs elsewhere, HealthCheckProgram
drains and lifts, and one table shows every node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import trainwright
from trainwright.cli.main import cli
from trainwright.health.cluster import sum_up
from trainwright.platforms.local import daemons, life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.state import Record

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(os.geteuid() != 0, reason="a node's own mounts need root")]
SOURCE = Path(trainwright.__file__).parents[1]


def script(path: Path, options: str = "", conf: Path = Path("/etc/slurm/slurm.conf")) -> Path:
    """A prolog or health program; slurmd starts it with a nearly empty environment."""
    path.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={SOURCE} SLURM_CONF={conf}\n"
        f"exec {sys.executable} -m trainwright.health {options} >> {path}.log 2>&1\n"
    )
    path.chmod(0o755)
    return path


def break_node(record: Record, name: str, folder: Path) -> Path:
    """Give one node a file system that its fstab has and it does not mount; emptying the file repairs the node."""
    fstab = folder / "fstab"
    fstab.write_text("10.9.9.9:/export /fsx nfs4 rw,hard 0 0\n")
    _in_node(record, name, "mount", "--bind", str(fstab), "/etc/fstab")
    return fstab


def _in_node(record: Record, name: str, *command: str) -> None:
    pid = state.pid_of(record, f"node-{name}")
    subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--", *command], check=True)


def wait(test: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def node_reason(record: Record, name: str) -> str:
    return daemons.run_on_head(record, ["sinfo", "-h", "-n", name, "-o", "%T %E"]).strip()


def test_a_prolog_that_fails_drains_the_node_and_the_job_runs_elsewhere(own_home: Path, tmp_path: Path) -> None:
    prolog = script(tmp_path / "prolog.sh")
    settings = (("Prolog", str(prolog)), ("PrologFlags", "Alloc"))
    record = life.up(LocalCluster("sick", (LocalQueue("train", 3),), settings=settings), own_network=True)
    break_node(record, "train-1", tmp_path)
    out = tmp_path / "out"
    submit = ["sbatch", "--parsable", "--nodes=2", "--requeue", f"--output={out}", "--wrap", "srun hostname"]
    job = daemons.run_on_head(record, submit).strip()

    def ended() -> bool:
        return "COMPLETED" in daemons.run_on_head(record, ["scontrol", "-o", "show", "job", job])

    wait(ended, daemons.run_on_head(record, ["sinfo", "-N", "-l"]))
    assert sorted(out.read_text().split()) == ["train-2", "train-3"]
    assert node_reason(record, "train-1").startswith("drained")
    log = Path(f"{prolog}.log").read_text()
    assert "train-1: isolate: storage.mounts: /fsx is in /etc/fstab and not mounted" in log
    assert log.count("isolate:") == 1, "only the broken node is drained"


def test_the_health_program_drains_a_broken_node_and_lifts_its_own_drain(own_home: Path, tmp_path: Path) -> None:
    program = script(tmp_path / "program.sh", "--act", own_home / "clusters/watched/etc/slurm.conf")
    settings = (("HealthCheckProgram", str(program)), ("HealthCheckInterval", "2"))
    record = life.up(LocalCluster("watched", (LocalQueue("train", 2),), settings=settings), own_network=True)
    daemons.run_on_head(record, ["scontrol", "update", "NodeName=train-2", "State=DRAIN", "Reason=by hand"])
    fstab = break_node(record, "train-1", tmp_path)
    drained = "drained trainwright health: isolate"
    wait(lambda: node_reason(record, "train-1").startswith(drained), "not drained")
    fstab.write_text("")
    wait(lambda: node_reason(record, "train-1").startswith("idle"), "not resumed")
    assert node_reason(record, "train-2") == "drained by hand", "a person's drain stays"


SPEC = """\
name: careful
platform: local
queues: [{name: train, nodes: 2, cpus: 1}]
jobs:
  - {name: hello, script: hello.py, nodes: 2, health: true}
"""


def test_a_job_asks_for_healthy_nodes_and_keeps_their_verdicts(own_home: Path, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "hello.py").write_text("print('hello')\n")

    def verb(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainwright", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    assert verb("up", "spec.yaml").returncode == 0
    done = verb("submit", "spec.yaml", "hello", "--follow")
    assert done.returncode == 0, done.stderr
    folder = next(path for path in (own_home / "runs").iterdir() if path.is_dir())
    kept = {entry.node: entry.verdict for entry in sum_up(folder / "health")}
    assert kept == {"train-1": "pass", "train-2": "pass"}
    break_node(state.require("careful"), "train-2", tmp_path)
    verb("submit", "spec.yaml", "hello", "--follow")
    runs = [path for path in (own_home / "runs").iterdir() if path.is_dir() and path != folder]
    unfit = [entry.node for entry in sum_up(runs[0] / "health") if not entry.usable]
    assert unfit == ["train-2"]
    assert not list(runs[0].glob("logs/rank-*.log")), "no rank started"
    verb("cancel", runs[0].name)


def test_a_job_leaves_out_the_unfit_node_and_runs_on_others(own_home: Path, tmp_path: Path) -> None:
    spec = SPEC.replace("nodes: 2, cpus: 1", "nodes: 3, cpus: 2").replace("health: true", "health: true, processes: 2")
    (tmp_path / "spec.yaml").write_text(spec)
    (tmp_path / "hello.py").write_text("import os\nprint('hello from', os.environ['SLURMD_NODENAME'])\n")

    def verb(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainwright", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    assert verb("up", "spec.yaml").returncode == 0
    break_node(state.require("careful"), "train-1", tmp_path)
    done = verb("submit", "spec.yaml", "hello", "--follow")
    assert done.returncode == 0, done.stderr
    (folder,) = (path for path in (own_home / "runs").iterdir() if path.is_dir())
    assert {entry.node: entry.usable for entry in sum_up(folder / "health")} == {
        "train-1": False,
        "train-2": True,
        "train-3": True,
    }
    printed = "".join(path.read_text() for path in folder.glob("logs/rank-*.log"))
    assert {line.split()[-1] for line in printed.splitlines() if "hello" in line} == {"train-2", "train-3"}


def test_one_table_of_every_node_names_the_bad_one_and_the_odd_one(own_home: Path, tmp_path: Path) -> None:
    record = life.up(LocalCluster("many", (LocalQueue("train", 4), LocalQueue("spare", 1))), own_network=True)
    break_node(record, "train-2", tmp_path)
    release = tmp_path / "os-release"
    release.write_text('PRETTY_NAME="Other Linux 9"\n')
    _in_node(record, "train-3", "mount", "--bind", str(release), "/etc/os-release")
    daemons.run_on_head(record, ["scontrol", "update", "NodeName=train-4", "State=DRAIN", "Reason=a fan is broken"])
    result = CliRunner().invoke(cli, ["health", "--cluster", "many"])
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    rows = {line.split()[0]: line for line in result.output.splitlines()}
    assert "isolate" in rows["train-2"]
    assert "/fsx is in /etc/fstab and not mounted" in rows["train-2"]
    assert "a fan is broken" in rows["train-4"]
    assert rows["spare-1"].split()[2] == "pass"
    assert "train-3: Other Linux 9" in rows["differs:"]
    odd = CliRunner().invoke(cli, ["versions", "--cluster", "many"])
    assert (odd.exit_code, "train-3: Other Linux 9" in odd.output) == (1, True), odd.output


@pytest.mark.slow
def test_sixty_four_nodes_are_checked_in_ten_seconds(own_home: Path) -> None:
    life.up(LocalCluster("wide", (LocalQueue("train", 64),)), own_network=True)
    began = time.monotonic()
    result = CliRunner().invoke(cli, ["health", "--cluster", "wide"])
    took = time.monotonic() - began
    assert result.exit_code == 0, result.output
    assert "64 pass" in result.output
    print(f"64 nodes in {took:.1f} s")
    assert took < 10
