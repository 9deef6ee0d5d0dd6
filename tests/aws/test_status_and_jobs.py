"""`status` and `down` beside the Slurm of the head node: nodes as both see them, jobs before a removal, and a head node
that does not answer. ssh is a small program here; tests/aws/test_whole_story.py has a real one."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from standin.harness import REGION, Cloud
from standin.tool import StandInTool

from trainwright.cli.status import show_aws
from trainwright.platforms.apply.remove import JobsOnCluster
from trainwright.platforms.apply.status import StatusReader, clusters
from trainwright.platforms.parallelcluster.apply import slurm
from trainwright.platforms.parallelcluster.apply.remove import ParallelClusterRemoval
from trainwright.platforms.parallelcluster.apply.status import ParallelClusterStatus
from trainwright.schedulers.shell import Shell, Unreachable
from trainwright.schedulers.slurm import SlurmScheduler


@pytest.fixture
def up(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A cluster that is up, and the programs of Session Manager."""
    cloud.planned(tmp_path)
    cloud.up()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name in ("aws", "session-manager-plugin"):
        program(tmp_path, name, "exit 1")
    return cloud


def program(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def removal(cloud: Cloud) -> tuple[ParallelClusterRemoval, list[str]]:
    said: list[str] = []
    return ParallelClusterRemoval("cut", cloud.account, said.append, tool=StandInTool(cloud.account)), said


def test_nodes_as_slurm_sees_them_stand_beside_their_machines(up: Cloud, tmp_path: Path) -> None:
    reader = ParallelClusterStatus(up.account, "cut")
    first, second = [m["PrivateIpAddress"] for m in reader.machines() if not reader.is_head(m)]
    lines = [f"train-st-p5-1|train|mixed|{first}|none", f"train-st-p5-2|train|down*|{second}|Kill task failed",
             "train-dy-p5-1|train|idle~|train-dy-p5-1|none"]  # fmt: skip
    program(tmp_path, "ssh", "\n".join(f"echo '{line}'" for line in lines))
    found = reader.read()
    assert found is not None
    shown = show_aws(found, with_nodes=True)
    assert "2 running  1 mixed, 1 down, 1 powered_down" in shown
    (down,) = [line for line in shown.splitlines() if second in line]
    assert down.split("  ")[-1].strip() == "Kill task failed"
    assert "train-st-p5-2  down" in down


@pytest.mark.parametrize(
    ("ssh", "reason"),
    [("exec sleep 60", "no answer of the head node in 0.2 s"), ("echo refused >&2; exit 255", "refused")],
)
def test_a_head_node_that_does_not_answer_is_unknown(up: Cloud, tmp_path: Path, ssh: str, reason: str) -> None:
    program(tmp_path, "ssh", ssh)
    reader = ParallelClusterStatus(up.account, "cut", patience=0.2 if "sleep" in ssh else 20.0)
    began = time.monotonic()
    found = reader.read()
    assert time.monotonic() - began < 30
    assert found is not None
    assert f"nodes in Slurm: unknown ({reason})" in show_aws(found)
    assert found.queues[0].states == {"running": 2}, "what EC2 says is still there"


def test_down_lists_the_jobs_before_it_asks(up: Cloud, tmp_path: Path) -> None:
    existing = removal(up)[0].existing()
    program(
        tmp_path,
        "ssh",
        "echo '7|RUNNING|None|2|train-st-p5-[1-2]|train|2026-11-15T10:00:00|2026-11-15T10:00:01|pretrain-1'",
    )
    with pytest.raises(JobsOnCluster, match="7 pretrain-1"):
        removal(up)[0].require_idle(existing, force=False)
    removal(up)[0].require_idle(existing, force=True)
    program(tmp_path, "ssh", "true")
    idle, said = removal(up)
    idle.require_idle(existing, force=False)
    assert said == ["jobs on cut: asking its Slurm, for at most 40 s", "jobs on cut: none"]
    program(tmp_path, "ssh", "echo 'Connection timed out' >&2; exit 255")
    lost, said = removal(up)
    lost.require_idle(existing, force=False)
    assert said[1].startswith("jobs on cut: unknown (cannot reach cut")


def test_down_does_not_wait_for_a_head_node_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and is silent, as a node that hangs; ssh is the real one."""
    monkeypatch.setattr(slurm, "CONNECT", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        shell = Shell("127.0.0.1", ssh_options=("-p", str(silent.getsockname()[1]), "-o", "ControlMaster=no"))
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"cannot reach cut \(127\.0\.0\.1\)"):
            slurm.open_jobs(SlurmScheduler(shell, "cut"), lambda words: None)
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_status_of_a_thousand_nodes(up: Cloud, tmp_path: Path) -> None:
    ec2 = up.world.client("ec2", REGION)
    tags = {"parallelcluster:cluster-name": "cut", "parallelcluster:node-type": "Compute"}
    rows = [{"Key": k, "Value": v} for k, v in {**tags, "parallelcluster:queue-name": "train"}.items()]
    ec2.run_instances(
        ImageId="ami-12c6146b", InstanceType="p5.48xlarge", MinCount=998, MaxCount=998,
        TagSpecifications=[{"ResourceType": "instance", "Tags": rows}],
    )  # fmt: skip
    nodes = [f"train-st-p5-{n}|train|allocated|10.1.{n // 250}.{n % 250}|none" for n in range(1000)]
    (tmp_path / "nodes").write_text("\n".join(nodes) + "\n")
    program(tmp_path, "ssh", f"cat {tmp_path / 'nodes'}")
    answered: list[float] = []

    def stopwatch(number: int, service: str, action: str, when: str) -> None:
        answered.append(time.process_time() if when == "after" else -time.process_time())

    up.world.faults.watch = stopwatch
    began = time.process_time()
    found = ParallelClusterStatus(up.account, "cut", patience=60.0).read()
    assert found is not None
    shown = show_aws(found, with_nodes=True)
    own = time.process_time() - began - sum(answered)  # without the time that the stand-in needs to answer
    up.world.faults.watch = None
    assert found.queues[0].states == {"running": 1000}
    assert "1000 running  1000 allocated" in shown
    assert (found.state, len(found.file_systems), found.reservations[0].total) == ("running", 1, 2)
    assert found.file_systems[0].links == ("/data <-> s3://the-data AVAILABLE",)
    assert found.usd_hour > 1000
    # The head node is asked side by side with AWS, and waited for no longer than this.
    assert max(own, StatusReader.patience) < 2.0, f"{own:.1f} s of our own for 1,000 nodes"
    assert clusters(up.account) == ["cut"]
