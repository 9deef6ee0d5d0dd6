"""The lifecycle scripts of a HyperPod plan, run for real on a head node and a compute node that share their file
systems, each twice: users, mounts, files and modes are this machine's own, under an overlay (`node_root.py`)."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from platforms.hyperpod.filled import outputs_of
from platforms.hyperpod.node_root import PASSWORD, PUBLIC_KEY, Node, can_enter, resource_config, write_programs
from trainwright.platforms.hyperpod.lifecycle import ENTRY, lifecycle_files
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import wire
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load, load_text
from trainwright.stacks.references import fill

ROOT = Path(__file__).parents[3]


@cache
def plan() -> ClusterPlan:
    changes = ["software.containers=docker+enroot", "monitoring=true", "slurm={SchedulerParameters: 'bf_window=60'}"]
    return make_plan(load(ROOT / "examples/hyperpod-p5.yaml", changes))


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    """A head node and a compute node before HyperPod has called."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    files, outputs = tmp_path / "files", outputs_of(plan())
    write_programs(files / "bin")
    (files / "resource_config.json").write_text(resource_config())
    for name, key in plan().scripts.items():
        content = plan().content(name)
        if name in plan().files:
            content = fill(content.decode(), outputs).encode()
        for path in (files / name, files / "bucket" / key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    shared = tmp_path / "shared"
    head = Node.make(tmp_path / "head", shared, files, "controller")
    return head, Node.make(tmp_path / "worker", shared, files, "train")


def test_both_nodes_come_up_and_a_second_run_changes_nothing(nodes: tuple[Node, Node]) -> None:
    head, worker = nodes
    for node in (head, worker):
        done = node.lifecycle()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the node is ready" in done.stdout
        _accounts(node)
    _head_is_right(head)
    _worker_is_right(worker)
    _users_may_write(head)
    for node in (head, worker):
        before, shared = node.state(), _files(node.shared)
        node.forget_calls()
        done = node.lifecycle()
        assert done.returncode == 0, done.stdout + done.stderr
        assert node.state() == before
        assert _files(node.shared) == shared
        assert (node.shared / "fsx").stat().st_mode & 0o7777 == 0o750
        assert not any(call.startswith("restart slurm") for call in node.calls("systemctl")), "jobs would be lost"
        assert not node.calls("git") + node.calls("make"), "nothing is built twice"


def _accounts(node: Node) -> None:
    seen = node.run("id -u alice; id -u bob; getent passwd bob | cut -d: -f6; id -nG ubuntu").stdout.split()
    assert seen[:3] == ["5001", "5002", "/home/bob"]
    home = node.shared / "home/alice"
    assert (home.stat().st_mode & 0o777, home.stat().st_uid) == (0o750, 5001)
    lines = (node.folder / "upper/etc/fstab").read_text().splitlines()[1:]
    assert [line.split()[:3] for line in lines] == [
        ["fs-0a1b2c3d4e5f67890.fsx.us-east-2.amazonaws.com@tcp:/fzbvxbev", "/fsx", "lustre"],
        ["fs-0a1b2c3d4e5f67890.fsx.us-east-2.amazonaws.com:/fsx", "/home", "nfs4"],
    ], "one line per file system; this node has no disks of its own"


def _head_is_right(head: Node) -> None:
    slurm = head.folder / "upper/opt/slurm/etc"
    keys = head.shared / "home/ubuntu/.ssh/authorized_keys"
    assert keys.read_text() == f"{PUBLIC_KEY}\n"
    assert keys.stat().st_mode & 0o777 == 0o600
    settings = (slurm / "accounting.conf").read_text().splitlines()
    assert settings[0] == "SchedulerParameters=bf_window=60"
    assert "AccountingStorageHost=10.1.0.10" in settings
    assert (slurm / "slurm.conf").read_text().count("accounting.conf") == 1, "it is included already"
    database = (slurm / "slurmdbd.conf").read_text()
    assert f"StoragePass={PASSWORD}\n" in database
    assert "StorageParameters=SSL_CA=" in database
    assert (slurm / "slurmdbd.conf").stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in (head.folder / "upper/var/log/provision/provisioning.log").read_text()
    assert (slurm / "plugstack.conf").read_text() == "required /usr/local/lib/slurm/spank_pyxis.so\n"
    calls = head.calls("systemctl")
    order = [calls.index(f"restart {name}") for name in ("slurmdbd", "slurmctld")]
    assert order == sorted(order), "the controller finds its database"
    assert "disable --now slurmd" in calls
    assert "restart --no-block trainwright-runtime" in calls
    assert any("prometheus" in call for call in calls)
    assert list(head.shared.glob("fsx/trainwright/code/*/trainwright/train/loop.py"))


def _users_may_write(head: Node) -> None:
    """A new file system belongs to root; the starter's job saves to /fsx/checkpoints."""
    modes = [(head.shared / folder).stat().st_mode & 0o7777 for folder in ("fsx", "home")]
    assert modes == [0o1777, 0o755]
    (head.shared / "fsx").chmod(0o750)  # an administrator's own choice, which the second run leaves


def _worker_is_right(worker: Node) -> None:
    options = worker.folder / "upper/etc/trainwright/slurmd"
    assert options.read_text() == "SLURMD_OPTIONS=--conf-server 10.1.0.10\n"
    unit = worker.folder / "upper/etc/systemd/system/slurmd.service.d/trainwright.conf"
    assert "RequiresMountsFor=/fsx /home\n" in unit.read_text(), "a rebooted node takes jobs once it has its data"
    calls = worker.calls("systemctl")
    assert "restart slurmd" in calls
    assert "restart slurmctld" not in calls
    assert not worker.calls("aws"), "no key, no password and no runtime is this node's business"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name not in ("log", "lock")}


def test_a_node_without_its_data_fails_and_takes_no_jobs(nodes: tuple[Node, Node]) -> None:
    _, worker = nodes
    (worker.shared / "broken").touch()
    done = worker.lifecycle()
    assert done.returncode != 0
    assert "cannot be mounted at /fsx" in done.stdout
    assert not worker.calls("systemctl")
    (worker.shared / "broken").unlink()
    assert worker.lifecycle().returncode == 0, "the same node, tried again"


def test_lustre_is_mounted_after_its_client_is_set_up_for_efa() -> None:
    efa = ("storage=[{mount: /fsx, lustre: {capacity: 38.4TiB, throughput: 1000, efa: true}}]", "jobs=[]")
    options = "noatime,flock,_netdev,nofail"
    for changes, tail in (((), ""), (efa, ",x-systemd.after=configure-efa-fsx-lustre-client.service")):
        script = make_plan(load(ROOT / "examples/hyperpod-p5.yaml", changes)).files["lifecycle/storage.sh"]
        assert f" /fsx lustre {options}{tail}\n" in script


def test_an_account_of_the_image_under_other_numbers_fails_the_node(nodes: tuple[Node, Node]) -> None:
    _, worker = nodes
    assert worker.run("groupadd --gid 7000 alice; useradd --uid 5001 --gid alice alice").returncode == 0
    done = worker.lifecycle()
    assert done.returncode != 0
    words = "error: the user alice has uid 5001 and gid 7000 on this node; the spec gives both the number 5001"
    assert words in done.stdout
    assert "restart slurmd" not in worker.calls("systemctl"), "it takes no jobs"


def test_a_node_of_no_group_says_so(nodes: tuple[Node, Node]) -> None:
    _, worker = nodes
    done = worker.run('ADDRESS=10.9.9.9; export ADDRESS; bash "$FILES/lifecycle/on_create.sh"')
    assert done.returncode != 0
    assert "no instance group has a node with one of the addresses 10.9.9.9, 172.17.0.1" in done.stdout


def test_on_eks_images_and_pods_go_to_the_large_disk_at_every_boot(nodes: tuple[Node, Node]) -> None:
    node = nodes[1]
    script = make_plan(load(ROOT / "examples/hyperpod-eks-p5.yaml")).files["lifecycle/on_create.sh"]
    (node.files / "on_create.sh").write_text(script)
    disk = 'set -e; mkdir -p "$SHARED/disk" /opt/sagemaker; /bin/mount --bind "$SHARED/disk" /opt/sagemaker\n'
    done = node.run(f"""{disk}mkdir -p /var/lib/containerd && echo kept > /var/lib/containerd/image
for run in first second; do bash "$FILES/on_create.sh"; done
mountpoint -q /var/lib/kubelet; cat /opt/sagemaker/trainwright/-var-lib-containerd/image
echo pulled > /var/lib/containerd/image""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == "kept"
    assert node.calls("systemctl").count("stop kubelet containerd") == 1, "pods run by then"
    assert "enable trainwright-disks.service" in node.calls("systemctl")
    unit = (node.folder / "upper/etc/systemd/system/trainwright-disks.service").read_text().splitlines()
    assert "Before=containerd.service kubelet.service" in unit
    assert "RequiredBy=containerd.service kubelet.service" in unit
    assert "After=dlami-nvme.service" in unit
    (command,) = (line.removeprefix("ExecStart=") for line in unit if line.startswith("ExecStart="))
    done = node.run(f"{disk}{command}; mountpoint -q /var/lib/kubelet; cat /var/lib/containerd/image")  # a reboot
    assert (done.returncode, done.stdout) == (0, "pulled\n"), done.stderr
    assert node.run(f"set -e; {command}").returncode != 0, "without the disk containerd must not start on the small one"


HOSTILE = "x$(touch pwned)`id`'\"; rm -rf $HOME #"


def test_every_hole_of_a_script_is_quoted() -> None:
    """What a spec may hold in full: settings of Slurm, names of keys, addresses and arguments of scripts."""
    own = {"source": HOSTILE, "args": [HOSTILE]}
    spec = {
        "name": "pod", "platform": "hyperpod", "region": "us-east-2",
        "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2, "scripts": [own]}],
        "storage": [{"mount": f"/{kind}", kind: {"id": HOSTILE}} for kind in ("lustre", "openzfs", "efs")],
        "head": {"key": HOSTILE}, "accounting": {"uri": HOSTILE, "user": HOSTILE, "secret": HOSTILE},
        "slurm": {"SchedulerParameters": HOSTILE}, "software": {"containers": "docker+enroot"},
        "users": [{"name": "alice", "uid": 5001, "keys": [f"{PUBLIC_KEY} $(touch pwned)"]}],
    }  # fmt: skip
    setting = Setting(resolve(load_text(yaml.safe_dump(spec), "spec.yaml").spec)[0])
    wiring = wire(setting, bucket=True, cluster_owns_lustre=False)
    scripts = lifecycle_files(setting, wiring.ids, wiring.stacks)
    assert scripts[ENTRY].count(shlex.quote(HOSTILE)) == 2
    for name, script in scripts.items():
        if not name.endswith(".sh"):
            continue
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        for line in script.splitlines():
            for word in (HOSTILE, f"SchedulerParameters={HOSTILE}", f"{PUBLIC_KEY} $(touch pwned)"):
                line = line.replace(shlex.quote(word), "")
            assert "touch pwned" not in line, f"{name}: {line}"
