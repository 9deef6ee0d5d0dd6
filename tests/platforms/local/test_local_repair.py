"""`up` on a cluster that is there: dead daemons come back while jobs go on, changes are applied in place, and nothing
that would end a job happens without --force."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.platforms.local import change, config, daemons, leftovers, life, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.state import Record

pytestmark = pytest.mark.slurm


def cluster(nodes: int = 2, **fields: object) -> LocalCluster:
    return LocalCluster("one", (LocalQueue("train", nodes, cpus=2),), **fields)


def submit(record: Record, marker: Path, nodes: int = 2) -> str:
    """A job that goes on until the marker file is there, then leaves one of its own."""
    script = f'while [ ! -e "{marker}" ]; do sleep 0.1; done; touch "{marker}.$SLURM_JOB_ID"'
    words = ["sbatch", "--parsable", f"-N{nodes}", "-o", "/dev/null", "--wrap", script]
    job = daemons.run_on_head(record, words).strip()
    daemons.wait_for(lambda: change.jobs_on(record) == [f"job {job} wrap (running)"], "it runs", Path())
    return job


def saved(record: Record, job: str) -> None:
    """Wait until slurmctld has written its state, which it does some seconds after a change: a SIGKILL leaves that."""
    now = time.time()
    daemons.run_on_head(record, ["scontrol", "update", f"jobid={job}", "comment=saved"])
    file = record.folder / "spool/ctld/job_state"
    daemons.wait_for(lambda: file.stat().st_mtime > now, "slurmctld saves its state", record.log("slurmctld"), 30)


def program_of(record: Record, role: str) -> int:
    [pid] = [pid for pid, played in state.processes(record).items() if played == role and repair._plays(pid, role)]
    return pid


def kill(record: Record, role: str) -> None:
    pid = program_of(record, role)
    os.kill(pid, signal.SIGKILL)
    daemons.wait_for(lambda: role in repair.missing(record), f"{role} is gone", Path())


@pytest.mark.parametrize("own_network", [True, False])
def test_dead_daemons_come_back_and_the_job_goes_on(slurm: Path, tmp_path: Path, own_network: bool) -> None:
    if own_network and not daemons.namespaces_allowed():
        pytest.skip("no namespaces here")
    record = life.up(cluster(), own_network)
    job = submit(record, tmp_path / "go", nodes=1)
    saved(record, job)
    kill(record, "slurmctld")
    kill(record, "munged")
    status = life.status("one")
    assert status.state == "broken"
    assert "slurmctld is not running; `trainwright up SPEC` restarts it" in " ".join(status.problems)
    said: list[str] = []
    again = life.up(cluster(), own_network, said.append)
    assert again.identity == record.identity, "it is the same cluster"
    assert "restarting" in said[0]
    assert life.status("one").state == "running"
    assert change.jobs_on(record) == [f"job {job} wrap (running)"]
    (tmp_path / "go").touch()
    daemons.wait_for((tmp_path / f"go.{job}").exists, "the job ends", record.log("slurmctld"), 30)


@pytest.mark.slow
def test_a_head_that_is_gone_with_its_network_comes_back_and_so_does_the_job(slurm: Path, tmp_path: Path) -> None:
    if not daemons.namespaces_allowed():
        pytest.skip("no namespaces here")
    record = life.up(cluster())
    job = submit(record, tmp_path / "go", nodes=1)
    saved(record, job)
    kill(record, "head")
    assert life.up(cluster()).identity == record.identity, "slurmctld kept the network"
    kill(record, "slurmctld")
    kill(record, "head")
    assert life.up(cluster()).identity == record.identity
    (tmp_path / "go").touch()
    daemons.wait_for((tmp_path / f"go.{job}").exists, "the job was requeued and ends", record.log("slurmctld"), 90)


def test_a_dead_slurmd_comes_back_under_its_job(slurm: Path, tmp_path: Path) -> None:
    record = life.up(cluster(), own_network=False)
    job = submit(record, tmp_path / "go")
    kill(record, "node-train-2")
    assert life.status("one").problems == (
        "slurmd of train-2 is not running; `trainwright up SPEC` restarts it, and jobs go on",
    )
    life.up(cluster(), own_network=False)
    assert change.jobs_on(record) == [f"job {job} wrap (running)"]
    (tmp_path / "go").touch()
    daemons.wait_for((tmp_path / f"go.{job}").exists, "the job ends", record.log("slurmctld"), 30)


def test_nothing_that_ends_a_job_is_done_unasked(slurm: Path, tmp_path: Path) -> None:
    record = life.up(cluster())
    job = submit(record, tmp_path / "go")
    listed = f"job {job} wrap \\(running\\)"
    with pytest.raises(change.JobsInTheWay, match=listed) as caught:
        life.down("one")
    assert (caught.value.status, "--force" in caught.value.fix) == (1, True)
    with pytest.raises(change.JobsInTheWay, match=f"removing train-2 would end 1 job: {listed}"):
        life.up(cluster(1))
    with pytest.raises(change.JobsInTheWay, match="this change of the spec would end 1 job"):
        life.up(LocalCluster("one", (LocalQueue("train", 2, cpus=4),)))
    kill(record, "slurmctld")
    with pytest.raises(change.JobsInTheWay, match=f"job {job}"):
        life.down("one")
    assert life.down("one", force=True)
    assert state.processes(record) == {}


def test_a_larger_spec_adds_nodes_under_a_running_job(slurm: Path, tmp_path: Path) -> None:
    record = life.up(cluster())
    job = submit(record, tmp_path / "go")
    grown = life.up(cluster(3))
    assert grown.identity == record.identity
    assert change.jobs_on(grown) == [f"job {job} wrap (running)"]
    said = daemons.run_on_head(grown, ["srun", "-w", "train-3", "sh", "-c", "echo $SLURMD_NODENAME"])
    assert said.strip() == "train-3"
    (tmp_path / "go").touch()
    daemons.wait_for(lambda: not change.jobs_on(grown), "the job ends", grown.log("slurmctld"), 30)
    assert len(daemons.run_on_head(grown, ["srun", "-N3", "hostname"]).split()) == 3
    life.up(cluster(1))
    assert life.status("one").queues[0].states == {"idle": 1}


def test_without_namespaces_it_listens_on_loopback_alone(slurm: Path) -> None:
    if not config.loopback_address():
        pytest.skip("this machine's name is no loopback name, which `up` says")
    record = life.up(cluster(), own_network=False)
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    own = [line for line in listening if any(f"pid={pid}," in line for pid in state.processes(record))]
    assert len(own) == 3, "the controller and two nodes"
    assert all(line.split()[3].startswith("127.") for line in own), own


ELSEWHERE = """
import subprocess, sys
from trainwright.platforms.local import life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
record = life.up(LocalCluster("one", (LocalQueue("train", 1),)), say=print, own_network=False)
lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
own = [line.split()[3] for line in lines if any(f"pid={pid}," in line for pid in state.processes(record))]
print("listens:", *own)
life.down("one")
"""


@pytest.mark.slow
def test_a_machine_whose_name_is_no_loopback_name_is_told_what_listens(slurm: Path, tmp_path: Path) -> None:
    """Slurm binds to all addresses or to the one of the machine's name: where that is another, `up` must not say
    loopback. Seen under another name, with an /etc/hosts of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give the machine another name")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n192.0.2.77 elsewhere\n")
    prepare = f'hostname elsewhere && mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"'
    words = ["unshare", "--uts", "--mount", "sh", "-c", prepare, "sh", sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    said, _, listens = done.stdout.partition("listens:")
    assert listens.split(), done.stderr
    assert all(address.startswith("0.0.0.0:") for address in listens.split()), listens
    assert "on every interface" in said
    assert "loopback ports" not in said


STARTER = """
import os, sys, time
os.environ["TRAINWRIGHT_ENDS_WITH"] = str(os.getpid())
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
life.up(LocalCluster("one", (LocalQueue("train", 1),)))
print("up", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def starter() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", STARTER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().strip() == "up"
        yield process
        process.kill()


def test_a_cluster_ends_with_who_started_it_even_when_killed(slurm: Path) -> None:
    with starter() as process:
        record = state.require("one")
        process.kill()
    daemons.wait_for(lambda: state.read("one") is None, "the cluster is taken down", Path(), 30)
    daemons.wait_for(lambda: not state.processes(record), "no process is left", Path(), 10)


def test_status_shows_what_another_home_left(slurm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = life.up(cluster(1))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TRAINWRIGHT_HOME", str(tmp_path))
        [left] = [one for one in leftovers.leftovers() if one.home == str(slurm)]
        assert (left.name, left.there) == ("one", True)
        assert left.fix == f"TRAINWRIGHT_HOME={slurm} trainwright down one"
        shown = subprocess.run([sys.executable, "-m", "trainwright", "status"], capture_output=True, text=True)
        assert left.fix in shown.stderr
    assert [one for one in leftovers.leftovers() if one.home == str(slurm)] == []
    (record.folder / "cluster.json").unlink()
    [left] = [one for one in leftovers.leftovers() if one.home == str(slurm)]
    assert not left.there
    leftovers.end(left)
    began = time.monotonic()
    while state.processes(record) and time.monotonic() - began < 10:
        time.sleep(0.05)
    assert state.processes(record) == {}
