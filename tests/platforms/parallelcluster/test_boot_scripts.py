"""What the boot scripts do, run for real where that is possible: the list of nodes that Prometheus reads, made from the
answer of a `sinfo` that stands in for Slurm's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from trainwright.platforms.parallelcluster.boot import pins, render
from trainwright.platforms.plan.difference import difference
from trainwright.platforms.plan.tree import make_plan
from trainwright.spec.load import load, load_text

ROOT = Path(__file__).parents[3]

# Columns as `sinfo --Node --format='%N %o %R %T'` prints them: name, address, queue, state with its mark.
SINFO = """\
train-st-g6e-1 10.1.0.11 train idle
train-st-g6e-2 10.1.0.12 train allocated
train-st-g6e-2 10.1.0.12 other allocated
train-dy-g6e-1 train-dy-g6e-1 train idle~
train-dy-g6e-2 10.1.0.13 train mixed#
train-dy-g6e-3 10.1.0.14 train idle%
train-dy-g6e-4 10.1.0.15 train down*
train-dy-g6e-5 10.1.0.16 train draining
"""


def here_document(script: str, word: str) -> str:
    match = re.search(rf"<<'{word}'\n(.*?)^{word}$", script, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


@pytest.fixture
def monitoring() -> str:
    return make_plan(load(ROOT / "examples" / "monitored.yaml")).files["scripts/monitoring.sh"]


@pytest.mark.parametrize(("answer", "up"), [(SINFO, ["11", "12", "16"]), ("", [])])
def test_prometheus_scrapes_the_nodes_that_are_up(monitoring: str, tmp_path: Path, answer: str, up: list[str]) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/bash\ncat <<'EOF'\n{answer}EOF\n")
    sinfo.chmod(0o755)
    script = here_document(monitoring, "SCRIPT").replace("/opt/slurm/bin", str(tmp_path))
    script = script.replace("/var/lib/trainwright", str(tmp_path))
    subprocess.run(["bash", "-c", script], check=True)
    targets = json.loads((tmp_path / "nodes.json").read_text())
    assert [target["targets"] for target in targets] == [[f"10.1.0.{number}:9942"] for number in up]
    assert all(target["labels"]["queue"] == "train" for target in targets)


def test_the_exporter_in_the_script_runs_with_the_systems_python(monitoring: str, tmp_path: Path) -> None:
    unpack(monitoring, "CODE", tmp_path)
    words = ["/usr/bin/python3", "-m", "trainwright.exporters", "--once"]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert "trainwright_host_memory_size_bytes" in done.stdout
    unit = tmp_path / "trainwright/exporters/data/trainwright-exporter.service"
    if shutil.which("systemd-analyze"):
        subprocess.run(["systemd-analyze", "verify", unit], check=True)
        judged = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True)
        level = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
        assert level
        assert float(level[1]) < 3


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_prometheus_and_alertmanager_accept_their_files(tmp_path: Path) -> None:
    spec = load(
        ROOT / "examples" / "monitored.yaml",
        [
            "monitoring={alerts: {webhook: 'http://10.0.0.9/x', sns: 'arn:aws:sns:us-east-2:123456789012:on-call', "
            "mail: {to: a@example.com, sender: b@example.com, server: 'mail.example.com:25'}}, retention_days: 7, "
            "remote_write: 'https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1/api/v1/remote_write'}"
        ],
    )
    files = make_plan(spec).files
    assert "AmazonPrometheusRemoteWriteAccess" in files["cluster.yaml"]
    script = files["scripts/monitoring.sh"]
    unpack(script, "FILES", tmp_path)
    etc = tmp_path / "etc/prometheus"
    config = etc / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus", str(etc)))
    subprocess.run(["promtool", "check", "config", config], check=True)
    subprocess.run(["amtool", "check-config", etc / "alertmanager.yml"], check=True)
    assert "retention.time=7d" in script
    assert script.count("credentials.conf <<") == 2  # both sign requests to AWS
    dashboards = sorted((tmp_path / "var/lib/trainwright/dashboards").iterdir())
    assert [path.stem for path in dashboards] == ["cluster", "cost", "job", "network", "node", "storage"]
    for path in dashboards:
        panels = json.loads(path.read_text())["panels"]
        assert all(panel["targets"][0]["expr"] for panel in panels)


def unpack(script: str, word: str, folder: Path) -> None:
    """As the script does it."""
    function = re.search(r"^unpack\(\) \{.*?^\}", script, re.DOTALL | re.MULTILINE)
    assert function
    command = f'{function[0]}\nunpack "$0"'
    subprocess.run(["bash", "-c", command, folder], input=here_document(script, word), text=True, check=True)


def test_enroot_keeps_images_on_the_scratch_disks_where_there_are_some() -> None:
    with_scratch = make_plan(load(ROOT / "examples" / "p5-reservation.yaml")).files["scripts/enroot.sh"]
    assert "store=/scratch/enroot; else store=/var/enroot" in with_scratch


def test_docker_is_pinned() -> None:
    script = make_plan(load(ROOT / "examples" / "p4de-boot-scripts.yaml")).files["scripts/docker.sh"]
    assert re.search(r'engine="5:\d+\.\d+\.\d+-1~ubuntu', script)
    assert "apt-mark hold docker-ce" in script
    assert "deb/amd64" not in script, "nodes with Grace have another architecture"


LUSTRE = """\
name: efa
platform: parallelcluster
region: us-east-2
queues: [{name: train, instance: p5.48xlarge, count: 4}, {name: cpu, instance: c5.4xlarge, count: {min: 0, max: 2}}]
storage: [{mount: /fsx, lustre: {capacity: 19.2TiB, throughput: 250, efa: true}}]
"""


def test_lustre_over_efa_is_set_up_before_the_mount_on_nodes_with_efa() -> None:
    cluster = yaml.safe_load(make_plan(load_text(LUSTRE, "spec")).files["cluster.yaml"])
    train, cpu = cluster["Scheduling"]["SlurmQueues"]
    assert "lustre-efa.sh" in train["CustomActions"]["OnNodeStart"]["Sequence"][0]["Script"]
    assert "OnNodeStart" not in cpu.get("CustomActions", {})
    head = cluster["HeadNode"]["CustomActions"]["OnNodeStart"]["Sequence"]
    assert not any("lustre-efa" in step["Script"] for step in head)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("", "Lustre uses 2 EFA interfaces"),
        ("device", "no EFA device"),
        ("modinfo", "no EFA module"),
        ("curl", "is not that of 2026-08-20"),
        ("systemctl", "set-up of the client failed"),
        ("lnetctl", "no EFA interface of Lustre is up"),
    ],
)
def test_a_node_without_lustre_over_efa_starts_and_says_so(tmp_path: Path, broken: str, said: str) -> None:
    package, devices = tmp_path / "client.zip", tmp_path / "sys/class/infiniband"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("configure-efa-fsx-lustre-client/setup.sh", f"touch {tmp_path}/set-up\nexit 1\n")
    pinned = pins()["lustre_efa"] | {"sha256": hashlib.sha256(package.read_bytes()).hexdigest()}
    text = render("lustre-efa.sh.j2", pins=pinned).replace("/sys/class", str(devices.parent))
    text = text.replace("/var/lib", str(tmp_path / "var")).replace("/proc/modules", "/dev/null")
    devices.mkdir(parents=True)
    if broken != "device":
        (devices / "efa_0").touch()
    programs = {
        "modinfo": "true", "systemctl": "true", "curl": f'cp {package} "$5"',
        "lnetctl": "printf 'status: up\\nstatus: up\\nstatus: down\\n'",
    }  # fmt: skip
    programs |= {broken: 'echo other > "$5"' if broken == "curl" else "false"} if broken != "device" else {}
    for name, body in programs.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / (name or "none")).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / (name or "none")).chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", text], env={"PATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert (tmp_path / "var/trainwright/lustre-efa.failed").exists() == bool(broken)
    assert (tmp_path / "set-up").exists() == (broken in ("", "systemctl", "lnetctl"))


def test_the_head_node_runs_the_planned_scripts_in_order_and_no_other(tmp_path: Path) -> None:
    scripts = {name: f"#!/bin/bash\necho {name} $1 >> {tmp_path}/ran\n" for name in ("a.sh", "b.sh")}
    steps = [(f"0/{name}", hashlib.sha256(text.encode()).hexdigest()) for name, text in scripts.items()]
    for folder in ("bin", "bucket/0"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in scripts.items():
        (tmp_path / "bucket/0" / name).write_text(text)
    (tmp_path / "cfnconfig").write_text("cfn_region=us-east-2\n")
    (tmp_path / "bin/aws").write_text('#!/bin/bash\ncp "$6" "$7"\n')
    (tmp_path / "bin/aws").chmod(0o755)
    text = render("head.sh.j2", scripts=steps).replace("/etc/parallelcluster", str(tmp_path))
    command = ["bash", "-c", text, "head.sh", str(tmp_path / "bucket")]
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    assert subprocess.run(command, env=environment).returncode == 0
    assert (tmp_path / "ran").read_text() == f"a.sh {tmp_path}/bucket\nb.sh {tmp_path}/bucket\n"
    (tmp_path / "bucket/0/b.sh").write_text("touch /tmp/not-planned\n")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert (tmp_path / "ran").read_text().count("b.sh") == 1


def test_what_the_head_node_runs_changes_on_a_cluster_that_is_up() -> None:
    """ParallelCluster refuses a change of a head node's first scripts; a newer trainer must not mean a new cluster."""
    example = ROOT / "examples" / "p5-reservation.yaml"
    old, new = (make_plan(load(example, change)).files for change in ([], ["monitoring=true", "software.runtime=none"]))
    changes = [change for change in difference(old, new).changes if change.path.startswith("HeadNode.CustomActions")]
    assert changes
    assert {change.effect for change in changes} == {"live"}
