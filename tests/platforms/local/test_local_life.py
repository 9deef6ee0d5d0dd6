"""The life of a real local Slurm: up, down, side by side, after a crash, elastic, without root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import trainwright
from trainwright.errors import UserError
from trainwright.platforms.local import daemons, leftovers, life, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.state import Record

pytestmark = pytest.mark.slurm
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


def cluster(name: str = "one", **fields: object) -> LocalCluster:
    return LocalCluster(name, (LocalQueue("train", 3, cpus=2, gpus=2),), **fields)


def nothing_left(record: Record) -> None:
    assert state.processes(record) == {}
    assert not record.folder.exists()
    assert not record.short.is_symlink()


@pytest.mark.parametrize("own_network", [pytest.param(True, marks=needs_root), False])
def test_up_runs_jobs_and_down_leaves_nothing(slurm: Path, own_network: bool) -> None:
    record = life.up(cluster(), own_network)
    status = life.status("one")
    assert (status.state, status.queues[0].states) == ("running", {"idle": 3})
    said = daemons.run_on_head(record, ["srun", "-N3", "--gres=gpu:1", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)"])
    names = sorted(line.split()[0] for line in said.splitlines())
    assert names == ["train-1", "train-2", "train-3"]
    if own_network:
        assert all(line.split()[0] == line.split()[1] for line in said.splitlines()), "each node has its own host name"
    life.down("one")
    nothing_left(record)
    assert list((slurm / "clusters").iterdir()) == []
    assert str(record.folder) not in Path("/proc/mounts").read_text()


def test_gpus_are_counted_and_given_out(slurm: Path) -> None:
    record = life.up(cluster())
    given = daemons.run_on_head(record, ["srun", "--gres=gpu:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
    assert given.strip() == "0,1"
    with pytest.raises(UserError, match="not available"):
        daemons.run_on_head(record, ["srun", "--gres=gpu:3", "true"])


@needs_root
def test_storage_is_a_folder_the_nodes_share(slurm: Path, tmp_path: Path) -> None:
    mount = f"/tw-{tmp_path.name}/data"
    record = life.up(cluster(mounts=((str(tmp_path / "shared"), mount),)), own_network=True)
    write = f"echo $SLURMD_NODENAME > {mount}/$SLURMD_NODENAME"
    daemons.run_on_head(record, ["srun", "-N3", "sh", "-c", write])
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["train-1", "train-2", "train-3"]
    assert list(Path(mount).iterdir()) == [], "the mount is the nodes' alone"
    life.down("one")
    assert not Path(mount).parent.exists()
    assert len(list((tmp_path / "shared").iterdir())) == 3, "what was written stays"


def test_two_clusters_live_side_by_side(slurm: Path) -> None:
    first, second = life.up(cluster("one")), life.up(cluster("two"), own_network=False)
    third = life.up(cluster("three"), own_network=False)
    life.down("one")
    nothing_left(first)
    for record in (second, third):
        assert len(daemons.run_on_head(record, ["srun", "-N3", "hostname"]).split()) == 3
    assert state.names() == ["three", "two"]


def test_up_again_keeps_a_running_cluster(slurm: Path) -> None:
    assert life.up(cluster()) == life.up(cluster())


CRASH = """
import os, sys
from trainwright.platforms.local import daemons, life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
kill = lambda *words, **more: os.kill(os.getpid(), 9)
setattr(daemons, sys.argv[1], kill)
life.up(LocalCluster("one", (LocalQueue("train", 3, cpus=2, gpus=2),)))
"""


@pytest.mark.parametrize("where", ["start_head", "start_controller", "_connect", "start_nodes"])
def test_a_crash_of_up_is_cleaned_up_by_down(slurm: Path, where: str) -> None:
    if where == "_connect" and not daemons.namespaces_allowed():
        pytest.skip("no namespaces here")
    crashed = subprocess.run([sys.executable, "-c", CRASH, where])
    assert crashed.returncode == -signal.SIGKILL
    record = state.require("one")
    assert state.processes(record), "the crash left something to clean up"
    life.down("one")
    nothing_left(record)


def test_up_after_a_crash_starts_anew(slurm: Path) -> None:
    subprocess.run([sys.executable, "-c", CRASH, "start_nodes"])
    record = life.up(cluster())
    assert life.status("one").queues[0].states == {"idle": 3}
    assert repair.missing(record) == []


def test_a_start_that_fails_stops_what_it_started(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no nodes today")

    monkeypatch.setattr(daemons, "start_nodes", refuse)
    with pytest.raises(UserError, match="no nodes today"):
        life.up(cluster())
    assert state.processes(state.require("one")) == {}


def test_elastic_nodes_come_when_asked_for_and_go_when_idle(slurm: Path) -> None:
    queues = (LocalQueue("keep", 1), LocalQueue("burst", 3, cpus=2, least=1))
    record = life.up(LocalCluster("grow", queues, settings=(("SuspendTime", "3"), ("SuspendTimeout", "2"))))
    assert life.status("grow").queues[1].states == {"idle": 1, "powered-down": 2}
    began = time.monotonic()
    said = daemons.run_on_head(record, ["srun", "-N3", "-p", "burst", "sh", "-c", "echo $SLURMD_NODENAME"])
    assert sorted(said.split()) == ["burst-1", "burst-2", "burst-3"]
    assert time.monotonic() - began < 30
    daemons.wait_for(
        lambda: "node-burst-3" not in state.processes(record).values(), "burst-3 is powered down", Path(), 45
    )
    assert "node-burst-1" in state.processes(record).values(), "the node the queue keeps was powered down"


@pytest.fixture
def open_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes lie where every user can enter, also where TMPDIR names a folder of root's own."""
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")


@pytest.mark.usefixtures("open_temporary_folder")
def test_without_root_it_runs_on_loopback_ports(slurm: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to stop being root")
    # The checkout may lie in a folder that only root can enter: the other user runs from a copy.
    package = Path(trainwright.__file__).parent
    shutil.copytree(package, slurm / "src/trainwright", ignore=shutil.ignore_patterns("__pycache__", "examples"))
    for path in [slurm, *slurm.glob("**/*")]:
        os.chown(path, 65534, 65534)
    program = """
from trainwright.platforms.local import daemons, life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
record = life.up(LocalCluster("plain", (LocalQueue("train", 2),)))
assert not record.namespaces
print(daemons.run_on_head(record, ["srun", "-N2", "id", "-u"]).split())
life.down("plain")
"""
    # So may the interpreter: what of it is needed is loaded before root is left.
    start = "import os, sys; sys.path.insert(0, sys.argv[2]); import trainwright.platforms.local.life; "
    start += "os.setgroups([]); os.setgid(65534); os.setuid(65534); exec(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", start, program, str(slurm / "src")],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(slurm), "LOGNAME": "nobody", "USER": "nobody", leftovers.OWNER: ""},
    )
    assert done.stdout.strip() == "['65534', '65534']", done.stderr


def test_what_cannot_be_is_told(own_home: Path) -> None:
    with pytest.raises(UserError, match="no local cluster 'none'"):
        life.down("none")
    with pytest.raises(UserError, match="two queues"):
        LocalCluster("x", (LocalQueue("a"), LocalQueue("a")))
    with pytest.raises(UserError, match="cannot be the name"):
        LocalCluster("Not A Name", (LocalQueue("a"),))


def test_without_slurm_the_word_is_clear(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PATH", "/nowhere")
    with pytest.raises(UserError, match="no Slurm to start") as caught:
        life.up(cluster())
    assert "--scheduler process" in caught.value.fix


def test_a_busy_cluster_is_not_touched(own_home: Path) -> None:
    with state.locked("one"), pytest.raises(UserError, match="another command"), state.locked("one"):
        pass
