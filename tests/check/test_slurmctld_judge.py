"""What the real slurmctld makes of slurm.conf and topology.conf: what it refuses, resets or passes over is reported,
and what it accepts is not."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check

HEAD = """ClusterName=judge
SlurmctldHost=localhost
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
SlurmdPort={other}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
"""
pytestmark = pytest.mark.skipif(
    not all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("slurmctld", "sbatch")), reason="needs slurmctld"
)


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@contextmanager
def slurmctld(folder: Path, text: str) -> Iterator[tuple[str, bool]]:
    """What it logs until it runs or ends, and whether it runs."""
    (folder / "state").mkdir(parents=True)
    port, other = free_ports()
    # An address that needs no lookup: only the words of the test count.
    text = text.replace(" CPUs=", " NodeAddr=127.0.0.1 CPUs=")
    head = HEAD.format(user=getpass.getuser(), port=port, other=other, folder=folder)
    (folder / "slurm.conf").write_text(head + text)
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["/usr/sbin/slurmctld", "-D", "-c", "-v", "-f", str(folder / "slurm.conf")],
            stdout=file, stderr=file, env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while process.poll() is None and "Running as primary" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield log.read_text(), process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=30)


NODE, PARTITION = "NodeName=a CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1\n", "PartitionName=p Nodes=a\n"
TREE = "TopologyPlugin=topology/tree\n"
CASES = [
    (NODE + PARTITION, "", "", None),
    (NODE, "", "No PartitionName information available", "error SLU004"),
    (NODE + NODE + PARTITION, "", "Duplicated NodeHostName a", "error SLU004"),
    (NODE + PARTITION + PARTITION, "", "duplicate entry for partition p", "error SLU004"),
    (NODE + PARTITION.replace("=a", "=a,b"), "", "Invalid node names in partition p", "error SLU004"),
    (NODE.replace("CPUs=8", "CPUs=16") + PARTITION, "", "Resetting CPUs", "warning SLU005"),
    (NODE.replace("CPUs=8", "CPUs=16").replace(" ThreadsPerCore=1", "") + PARTITION, "", "Resetting", "warning SLU005"),
    (NODE.replace("CPUs=8", "CPUs=2") + PARTITION, "", "", None),
    (TREE + NODE + PARTITION, "SwitchName=s Nodes=a,b\n", "Invalid hostnames in switch", "warning SLU004"),
    (TREE + NODE + PARTITION, "SwitchName=s Nodes=a\nSwitchName=t Switches=s,u\n", "invalid child (u)", "error SLU004"),
    (NODE + PARTITION, "SwitchName=s Nodes=a,b\n", "", None),
]


@pytest.mark.parametrize(("text", "topology", "said", "reported"), CASES)
def test_slurmctld_agrees(tmp_path: Path, text: str, topology: str, said: str, reported: str | None) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    if topology:
        (folder / "topology.conf").write_text(topology)
    with slurmctld(folder, text) as (log, runs):
        assert said in log
        assert runs == ((reported or "").split()[:1] != ["error"])
    findings = check([str(folder)], Selection(select=("SLU004", "SLU005"))).findings
    assert [f"{f.level} {f.code}" for f in findings if f.level != "info"] == ([reported] if reported else [])


@pytest.mark.parametrize("option", ["--gpus=1", "--gpus-per-task=1", "--cpus-per-gpu=2 --gres=gpu:1"])
def test_slurmctld_refuses_gpus_without_cons_tres(tmp_path: Path, option: str) -> None:
    nodes = "GresTypes=gpu\nNodeName=a CPUs=8 Gres=gpu:4\nPartitionName=p Nodes=a Default=YES\n"
    (tmp_path / "gres.conf").write_text("Name=gpu Count=4\n")
    with slurmctld(tmp_path, "SelectType=select/cons_res\nSelectTypeParameters=CR_Core\n" + nodes) as (_, runs):
        assert runs
        environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
        command = ["/usr/bin/sbatch", "-n1", *option.split(), "--wrap=true"]
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "unsupported by configured SelectType plugin" in refused.stderr
    [finding] = check([str(tmp_path / "slurm.conf")], Selection(select=("SLU005",))).findings
    assert option.partition("=")[0] in finding.message


GPU_NODE = "GresTypes=gpu\nNodeName=a CPUs=8 Gres=gpu:4\nPartitionName=p Nodes=a\n"


@pytest.mark.parametrize(
    ("select", "starts", "reported"),
    [
        ("select/cons_tres", True, []),
        ("cons_tres", False, ["warning SLU005"]),
        ("linear", False, ["warning SLU005"]),
        ("select/linear", True, ["info SLU005"]),
    ],
)
def test_slurmctld_finds_a_select_plugin_only_by_its_whole_name(
    tmp_path: Path, select: str, starts: bool, reported: list[str]
) -> None:
    parameters = "SelectTypeParameters=CR_Core\n" if "cons" in select else ""
    text = f"SelectType={select}\n{parameters}TaskPlugin=task/cgroup\n{GPU_NODE}"
    with slurmctld(tmp_path, text) as (log, runs):
        assert runs == starts
        assert (f"Can't find plugin for {select}" in log) == (not starts)
    findings = check([str(tmp_path / "slurm.conf")], Selection(select=("SLU005",))).findings
    assert [f"{f.level} {f.code}" for f in findings] == reported
    assert all(("does not start" in f.message) == (not starts) for f in findings)


def slurmd_log(folder: Path, plugins: str) -> str:
    """What slurmd logs of its task plugins, until it has them all or ends."""
    (folder / "spool").mkdir()
    places = f"SlurmdSpoolDir={folder}/spool\nSlurmdPidFile={folder}/slurmd.pid\n"
    log, conf = folder / "slurmd.log", folder / "slurm.conf"
    with slurmctld(folder, f"TaskPlugin={plugins}\n{places}{NODE}{PARTITION}"), log.open("w") as file:
        command = ["/usr/sbin/slurmd", "-D", "-vvv", "-N", "a", "-f", str(conf)]
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            last, deadline = f"task/{plugins.split(',')[-1].removeprefix('task/')}", time.monotonic() + 20
            while process.poll() is None and last not in log.read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            process.terminate()
            process.wait(timeout=30)
    return log.read_text()


@pytest.mark.skipif(not Path("/usr/sbin/slurmd").exists() or os.geteuid() != 0, reason="needs slurmd, as root")
@pytest.mark.parametrize(
    ("plugins", "reported"),
    [
        ("affinity,cgroup", False),
        ("task/affinity,cgroup", False),
        ("task/affinity,task/cgroup", False),
        ("affinity", True),
        ("affinity,Cgroup", True),
    ],
)
def test_slurmd_finds_task_plugins_without_their_prefix(tmp_path: Path, plugins: str, reported: bool) -> None:
    log = slurmd_log(tmp_path, plugins)
    assert "task/affinity" in log
    assert ("task/cgroup" in log) == (not reported)
    conf = f"SelectType=select/cons_tres\nTaskPlugin={plugins}\n{GPU_NODE}"
    (tmp_path / "slurm.conf").write_text(f"ClusterName=a\nSlurmctldHost=b\n{conf}")
    findings = check([str(tmp_path / "slurm.conf")], Selection(select=("SLU005",))).findings
    assert [f.code for f in findings] == ["SLU005"] * reported


MEMORY = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ("--partition=p --time=61", True),
        ("--partition=p --nodes=2 --time=5", True),
        ("--partition=p --nodes=1 --time=60", False),
    ],
)
def test_slurmctld_keeps_a_job_above_its_partition(tmp_path: Path, options: str, waits: bool) -> None:
    nodes = NODE.replace("NodeName=a", "NodeName=a[1-2]") + "PartitionName=p Nodes=a[1-2] MaxTime=60 MaxNodes=1\n"
    job = tmp_path / "job.sbatch"
    job.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {one}\n" for one in options.split()) + "true\n")
    with slurmctld(tmp_path, nodes) as (_, runs):
        assert runs
        environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
        subprocess.run(["/usr/bin/sbatch", str(job)], env=environment, capture_output=True, check=True)
        queued = subprocess.run(
            ["/usr/bin/squeue", "-h", "-o", "%r"], env=environment, capture_output=True, text=True, check=True
        )
    # PartitionConfig; from the first round of the scheduler on PartitionTimeLimit or PartitionNodeLimit
    assert queued.stdout.startswith("Partition") == waits
    findings = check([str(job)], Selection(select=("SLU006",))).findings
    assert any("waits for ever" in one.message for one in findings) == waits


@pytest.mark.parametrize(("memory", "default"), [("", "DefMemPerCPU=4000"), ("RealMemory=64000", "DefMemPerCPU=4000")])
def test_slurmctld_refuses_memory_that_no_node_states(tmp_path: Path, memory: str, default: str) -> None:
    node = NODE.replace(" CPUs=8", f" CPUs=8 {memory}")
    with slurmctld(tmp_path, f"{MEMORY}{node}PartitionName=p Nodes=a Default=YES {default}\n") as (_, runs):
        assert runs
        environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
        command = ["/usr/bin/sbatch", "--wrap=true"]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ("Memory specification can not be satisfied" in answer.stderr) == (not memory)
    findings = check([str(tmp_path / "slurm.conf")], Selection(select=("SLU005",))).findings
    assert any("sbatch refuses them" in one.message for one in findings) == (not memory)
