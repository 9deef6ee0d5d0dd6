"""The directory for real: the stack's own program makes an LDAP server, our script joins a machine to it, and a user
of it signs in by key and runs a Slurm job."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inner_machine import machine_folder, run_inside
from trainwright.platforms.directory.join import CA, DirectoryAccess, join_script, keys_script
from trainwright.platforms.plan.tree import make_plan
from trainwright.spec.load import load
from trainwright.spec.source import parse
from trainwright.stacks.library import FOLDER as TEMPLATES
from trainwright.stacks.library import template

PROGRAMS = ("slapd", "slapadd", "sssd", "sshd", "slurmctld")
PROGRAM = TEMPLATES.parent / "programs" / "directory_server.py"
EXAMPLE = Path(__file__).parents[3] / "examples" / "hyperpod-p5.yaml"
MACHINE = Path(__file__).with_name("machine.py")
CLUSTER = """name: directory-test
platform: local
queues:
  - {name: main, nodes: 1, cpus: 1}
"""


def commands(**values: str) -> str:
    """What the stack runs on the server, with its references filled in."""
    (root,) = parse(template("directory").text, "directory")
    section = root.get("Resources", "Setup", "Properties", "Parameters", "commands")
    assert section is not None
    text = "\n".join(item.text for item in section.elements())
    return re.sub(r"\$\{([A-Za-z.:]+)\}", lambda m: values[m[1]], text)


def test_the_stack_carries_the_program_as_it_is() -> None:
    text = commands(
        **dict.fromkeys(("AWS::Region", "Base", "Password", "Authority", "Bucket", "ClusterName", "Users"), "x")
    )
    carried = text.split("python3 - << 'PROGRAM'\n", 1)[1].split("PROGRAM\n", 1)[0]
    assert carried == PROGRAM.read_text(encoding="utf-8")


def test_homes_are_shared_where_home_is_not() -> None:
    """Without it a user of HyperPod would have another home on each node."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3fXq2mW0z1s9ZpQb8dHk7tYvU4cRnL6eXaOgPiS5Tq"
    people = ("directory=true", f"users=[{{name: ada, uid: 10001, keys: ['{key}']}}]", "jobs=[]")
    for storage, line in (("/fsx", "override_homedir = /fsx/home/%u"), ("/home", "")):
        changes = (*people, f"storage=[{{mount: {storage}, lustre: {{capacity: 4.8TiB}}}}]")
        script = make_plan(load(EXAMPLE, changes)).files["lifecycle/directory.sh"]
        assert ("override_homedir" in script) == bool(line)
        assert line in script


def test_the_head_node_of_parallelcluster_lets_sssd_and_sshd_have_their_way(tmp_path: Path) -> None:
    """sssd starts the responder itself where its file says so, and its socket then refuses to start; what stands on
    sshd's command line counts for more than our file."""
    calls, lib = tmp_path / "calls", tmp_path / "usr/lib/systemd/system/ssh.service.d"
    lib.mkdir(parents=True)
    (lib / "ec2-instance-connect.conf").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f'#!/bin/sh\necho "$*" >> {calls}\n')
    (tmp_path / "bin/systemctl").chmod(0o755)
    (tmp_path / "etc/sssd").mkdir(parents=True)
    script = keys_script("us-east-1")
    for place in ("/etc/ssh", "/etc/sssd", "/etc/systemd", "/etc/$connect", "/usr/lib/$connect"):
        script = script.replace(place, f"{tmp_path}{place}")
    path = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    for services in ("nss, pam, ssh", "nss, pam"):
        (tmp_path / "etc/sssd/sssd.conf").write_text(f"[sssd]\nservices = {services}\n")
        shutil.rmtree(tmp_path / "etc/ssh", ignore_errors=True)
        calls.write_text("")
        subprocess.run(["bash", "-c", script], check=True, env=path)
        assert ("enable --now sssd-ssh.socket" in calls.read_text()) == ("ssh" not in services)
        mask = tmp_path / "etc/systemd/system/ssh.service.d/ec2-instance-connect.conf"
        assert os.readlink(mask) == "/dev/null"
    assert "restart ssh\n" not in calls.read_text(), "once is enough"


@pytest.fixture
def work() -> Iterator[Path]:
    with machine_folder(*PROGRAMS) as folder:
        yield folder


@pytest.mark.slow
def test_a_user_of_the_directory_signs_in_and_runs_a_job(work: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", work / "key"], check=True)
    key = " ".join((work / "key.pub").read_text().split()[:2])
    name = "directory.demo.internal"
    stack = {
        "AWS::Region": "us-east-1", "Base": "dc=demo,dc=internal", "Password": "reader",
        "Authority": "authority", "Bucket": "scripts", "ClusterName": "demo",
    }  # fmt: skip
    access = DirectoryAccess(
        f"ldaps://{name}", "dc=demo,dc=internal", "cn=reader,dc=demo,dc=internal", "reader", CA,
        "s3://scripts/trainwright/demo/directory/ca.pem",
    )  # fmt: skip
    plan = {
        "name": name,
        "server": commands(**stack, Users=json.dumps({"ada": {"uid": 10001, "keys": [key]}})),
        "server_later": commands(**stack, Users=json.dumps({"grace": {"uid": 10002, "keys": []}})),
        "join": join_script(access, "us-east-1"),
    }
    (work / "plan.json").write_text(json.dumps(plan))
    (work / "cluster.yaml").write_text(CLUSTER)
    saw = run_inside(work, MACHINE)
    assert saw["plain"] != 0, "only TLS is answered"
    assert "dn: " not in saw["anonymous"], "nothing is shown to those who do not sign in"
    assert saw["passwd"] == "ada:*:10001:10001:ada:/home/ada:/bin/bash"
    assert saw["group"] == "ada:*:10001:ada"
    assert saw["ssh"].splitlines() == ["ada", "/home/ada"], "by key, into a home that was made for the user"
    assert saw["again"].split("\n")[:-1] == ["enable sssd", "start slapd"], "a second run starts nothing again"
    assert saw["slurm"].split() == ["ada", "10001"]
    assert saw["later"].startswith("grace:*:10002:"), "a joined node trusts the server that replaced the first"
    assert saw["gone"] != 0, "a user that the spec no longer names is gone"
