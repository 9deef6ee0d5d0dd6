"""The way to a head node: found by its tags, over ssh through Session Manager. The node is a real sshd with a real
Slurm behind it, on this machine; a stand-in of `aws ssm start-session` relays to it, as Session Manager does."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner
from moto import mock_aws

from session_relay import relay
from trainwright.aws.head_node import HeadNode
from trainwright.cli import connect
from trainwright.cli.main import cli
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.parallelcluster import reach
from trainwright.platforms.parallelcluster.reach import Way, add_to_user_config, shell_command

HEAD = HeadNode("far", "us-east-2", "i-0123456789abcdef0", "ubuntu2204", key="my-key")
SPEC = """\
name: far
platform: parallelcluster
region: us-east-2
queues: [{name: train, instance: c5.large, count: 1}]
head: {key: my-key}
software: {runtime: none}
runs: RUNS
jobs: [{name: hello, command: [bash, -c, "echo hello from the node"], launcher: plain, nodes: 1, requeue: false}]
"""


@pytest.mark.parametrize(
    ("system", "user"),
    [("ubuntu2404", "ubuntu"), ("alinux2023", "ec2-user"), ("rhel9", "ec2-user"), ("rocky9", "rocky")],
)
def test_each_system_has_its_user(system: str, user: str) -> None:
    assert f"  User {user}\n" in Way(replace(HEAD, os=system)).block()


def test_the_block_is_one_that_ssh_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "a home"))
    (tmp_path / "config").write_text(Way(HEAD, identity=str(tmp_path / "a key")).block())
    done = subprocess.run(
        ["ssh", "-G", "-F", tmp_path / "config", "trainwright-far"], capture_output=True, text=True, check=True
    )
    options = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert options["hostname"] == HEAD.id
    assert options["identityfile"] == str(tmp_path / "a key")
    assert options["proxycommand"].startswith("aws --region us-east-2 ssm start-session --target %h")
    direct = Way(replace(HEAD, public="203.0.113.7"), direct=True).block()
    assert "HostName 203.0.113.7" in direct
    assert "ProxyCommand" not in direct


def test_the_users_configuration_keeps_what_is_theirs(tmp_path: Path) -> None:
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host mine\n  User me\n")
    for node in ("i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"):
        add_to_user_config(Way(replace(HEAD, id=node)), config)
        add_to_user_config(Way(replace(HEAD, cluster="other", id=node)), config)
    text = config.read_text()
    assert (text.count("Host trainwright-far\n"), text.count("Host trainwright-other\n")) == (1, 1)
    assert "i-0aaaaaaaaaaaaaaaa" not in text
    assert text.endswith("Host mine\n  User me\n")
    assert config.stat().st_mode & 0o777 == 0o600


def test_without_a_key_it_is_a_session_of_the_clusters_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach.shutil, "which", lambda program: f"/bin/{program}")
    way = Way(replace(HEAD, key=""))
    argv = shell_command(way, ["squeue", "-o", "%i %j"], terminal=True)
    assert argv[:6] == ["aws", "--region", "us-east-2", "ssm", "start-session", "--target"]
    assert "sudo -iu ubuntu bash -lc" in argv[-1]
    with pytest.raises(Exception, match="without a key pair"):
        way.keep()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An account with a head node, whose ssh port is reached through `aws ssm start-session` alone."""
    if missing_programs() or not shutil.which("sshd") or os.geteuid() != 0:
        pytest.skip("needs Slurm, sshd and root")
    folder = Path(tempfile.mkdtemp(prefix="twc"))
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder / "home"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    record = life.up(LocalCluster("far", (LocalQueue("train", 1, cpus=1),)), own_network=False)
    identity = folder / "home" / "keys" / "my-key.us-east-2"
    identity.parent.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(identity)], check=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {identity}\nAuthorizedKeysFile {identity}.pub\nStrictModes no\n"
        f"UsePAM no\nPidFile none\nPermitRootLogin yes\nSetEnv SLURM_CONF={record.conf}\nSubsystem sftp internal-sftp\n"
    )
    (folder / "bin").mkdir()
    for name in ("aws", "session-manager-plugin"):
        (folder / "bin" / name).write_text(relay(folder / "calls", port))
        (folder / "bin" / name).chmod(0o755)
    os.makedirs("/run/sshd", exist_ok=True)
    daemon = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd.conf"], stderr=subprocess.PIPE, text=True
    )
    assert daemon.stderr is not None
    assert "Server listening" in daemon.stderr.readline()
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(Way, "user", "root")  # there is no `ubuntu` on this machine
    assert shutil.which("sbatch"), "this machine has a Slurm of its own, which is not the cluster's"
    (tmp_path / "trainwright.yaml").write_text(SPEC.replace("RUNS", str(folder / "runs")))
    monkeypatch.chdir(tmp_path)
    try:
        with mock_aws():
            head_node()
            yield folder
    finally:
        daemon.terminate()
        daemon.wait()
        life.down("far")
        shutil.rmtree(folder)


def head_node() -> None:
    ec2 = boto3.client("ec2", "us-east-2")
    ec2.create_key_pair(KeyName="my-key")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = {
        "parallelcluster:cluster-name": "far",
        "parallelcluster:node-type": "HeadNode",
        "parallelcluster:attributes": "ubuntu2204, slurm, 3.16.1, x86_64",
    }
    marks = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
    ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, KeyName="my-key", TagSpecifications=marks)


@pytest.mark.slow
@pytest.mark.slurm
def test_commands_copies_and_jobs_go_to_the_head_node(far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[subprocess.CompletedProcess[str]] = []

    def instead(program: str, argv: list[str]) -> None:
        ran.append(subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL))

    monkeypatch.setattr(connect.os, "execvp", instead)
    invoke: Any = CliRunner().invoke
    done = invoke(cli, ["connect", "--", "sinfo", "--noheader", "-o", "%P %D"])
    assert done.exit_code == 0, done.output
    assert ran[-1].stdout == "train* 1\n", ran[-1].stderr
    assert "ssm start-session --target i-" in (far / "calls").read_text()

    (far / "note").write_text("to the head node and back")
    done = invoke(cli, ["connect", "far", "--region", "us-east-2", "--put", str(far / "note"), str(far / "there"),
                        "--get", str(far / "there"), str(far / "back")])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (far / "back").read_text() == "to the head node and back"
    assert len(ran) == 1, "no shell is opened beside a copy"

    done = invoke(cli, ["submit", "trainwright.yaml", "hello", "--follow"])
    assert done.exit_code == 0, done.output
    assert "completed, exit status 0" in done.output
    logged = invoke(cli, ["logs", done.stdout.splitlines()[0]])
    assert "hello from the node" in logged.output
    done = invoke(cli, ["jobs", "trainwright.yaml"])
    assert done.exit_code == 0, done.output


@mock_aws
def test_a_cluster_without_a_head_node_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    done = CliRunner().invoke(cli, ["connect", "nobody", "--region", "us-east-2"])
    assert "cluster nobody has no running head node in us-east-2" in str(done.exception)
