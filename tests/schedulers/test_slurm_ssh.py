"""The same scheduler from a laptop: every command goes through a real sshd to the head node."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import counting_jobs
from counting_jobs import submit_counting
from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs, wait_for
from trainwright.runs import follow, submission
from trainwright.runs.store import Run
from trainwright.runs.submission import Order
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.slurm import SlurmScheduler

pytestmark = pytest.mark.slurm


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def laptop(module_home: Path) -> Iterator[Shell]:
    """A cluster on loopback ports, and an sshd that leads to its head."""
    if missing_programs() or not shutil.which("sshd") or os.geteuid() != 0:
        pytest.skip("needs Slurm, sshd and root")
    record = life.up(LocalCluster("far", (LocalQueue("train", 2, cpus=2),)), own_network=False)
    folder = Path(tempfile.mkdtemp(prefix="tws"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    port = free_port()
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/key\nAuthorizedKeysFile {folder}/authorized\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSetEnv SLURM_CONF={record.conf}\n"
    )
    (folder / "ssh.conf").write_text(
        f"Host head\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {folder}/key\n"
        f" IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    log = (folder / "log").open("w")
    daemon = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd.conf")], stderr=log)
    shell = Shell(host="head", ssh_options=("-F", str(folder / "ssh.conf")))
    try:
        wait_for(lambda: shell.run(["true"]).code == 0, "sshd answers", folder / "log", 20)
        yield shell
    finally:
        subprocess.run([*shell.argv(["true"])[:-3], "-O", "exit", "head"], capture_output=True)
        daemon.terminate()
        daemon.wait()
        log.close()
        shutil.rmtree(folder)


def order(shell: Shell, root: Path, **fields: object) -> Order:
    queues = [{"name": "train", "nodes": 2, "cpus": 2}]
    spec = {"name": "far", "platform": "local", "queues": queues, "runs": str(root)}
    return counting_jobs.order(spec, {"nodes": 2, **fields}, SlurmScheduler(shell, cluster="far", interface="lo"))


def test_submit_follow_and_read_the_end_over_ssh(laptop: Shell, tmp_path: Path) -> None:
    request = order(laptop, tmp_path / "far side")
    run = submit_counting(request, "--steps=6")
    assert run.host == "head"
    assert run.where.startswith(str(tmp_path / "far side"))
    lines: list[str] = []
    live: list[str] = []
    status = follow.follow(run, request.scheduler, None, lines.append, lambda now, _: live.append(now.line()), 0.1)
    assert status.state == "completed", lines
    assert {line.split("]")[0] for line in lines} == {"[rank-0", "[rank-1"}
    assert any(words.startswith("step 6") for words in live)
    assert not (run.folder / "metrics.jsonl").exists(), "what the job writes is on the far side"
    assert (Path(run.where) / "code/trainwright/train/__main__.py").exists()


@pytest.mark.slow
def test_an_own_script_meets_where_slurm_names_the_nodes_as_it_likes(laptop: Shell, tmp_path: Path) -> None:
    """train-1 and train-2 are names in slurm.conf and nowhere else: the nodes meet by address and by number."""
    request = counting_jobs.order(
        {
            "name": "far",
            "platform": "local",
            "queues": [{"name": "train", "nodes": 2, "cpus": 2}],
            "runs": str(tmp_path),
        },
        {"script": str(counting_jobs.COUNTING), "nodes": 2, "args": ["--steps=4"], "env": {"GLOO_SOCKET_IFNAME": "lo"}},
        SlurmScheduler(laptop, cluster="far"),
    )
    request = dataclasses.replace(request, venv=sys.prefix)
    run = submission.submit(request, submission.plan(request))
    lines: list[str] = []
    status = follow.follow(run, request.scheduler, None, lines.append, pause=0.1)
    assert status.state == "completed", "\n".join(lines)
    assert {line.split("]")[0] for line in lines} >= {"[rank-0", "[rank-1"}


def test_a_secret_goes_over_ssh_and_into_no_file(
    laptop: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "it's a $(" + "secret)\nof two lines"  # in two parts: the folder also holds the difference to the commit
    monkeypatch.setenv("MY_TOKEN", value)
    request = order(
        laptop, tmp_path, nodes=1, command=["bash", "-c", 'printf %s "$TOKEN" | wc -c'], launcher="plain",
        env={"TOKEN": {"secret": {"env": "MY_TOKEN"}}},
    )  # fmt: skip
    run = submission.submit(request, submission.plan(request))
    lines: list[str] = []
    status = follow.follow(run, request.scheduler, None, lines.append, pause=0.1)
    assert (status.state, lines[-1].split()[-1]) == ("completed", "29"), lines
    files = [path.read_bytes() for path in Path(run.where).rglob("*") if path.is_file()]
    assert not any(value.split("\n")[0].encode() in text for text in files)


def test_cancel_and_refusal_over_ssh(laptop: Shell, tmp_path: Path) -> None:
    request = order(laptop, tmp_path)
    run = submit_counting(request, "--steps=6")
    request.scheduler.cancel(run.identity)
    wait_for(lambda: request.scheduler.state(run.identity).state == "cancelled", "it is cancelled", Path(), 20)
    refused = order(laptop, tmp_path, reservation="none")
    with pytest.raises(UserError, match="refused"):
        submission.submit(refused, submission.plan(refused))


def test_one_connection_serves_many_commands(laptop: Shell) -> None:
    assert laptop.output(["printf", "%s", "a b"]) == "a b"
    # The destination is the third word from the end: ssh OPTIONS head -- COMMAND.
    asked = subprocess.run([*laptop.argv(["true"])[:-3], "-O", "check", "head"], capture_output=True, text=True)
    assert "Master running" in asked.stderr


def test_a_host_that_is_not_there_is_told(laptop: Shell) -> None:
    gone = Shell(host="nowhere.invalid", ssh_options=laptop.ssh_options)
    with pytest.raises(UserError, match="failed"):
        gone.output(["true"])


def test_a_run_remembers_its_far_side() -> None:
    run = Run("a", "b", "slurm", host="head", remote="/fsx/runs/a")
    assert run.where == "/fsx/runs/a"


@pytest.fixture
def by_name(laptop: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ssh head` works, as it does for a user whose own configuration knows the host."""
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {" ".join(laptop.ssh_options)} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("by_name")
def test_a_script_needs_no_spec_where_a_head_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything the job needs to know is read from the cluster, over a real ssh."""
    script = tmp_path / "own.py"
    script.write_text(
        "import os\nopen(os.environ['TRAINWRIGHT_RUN'] + '/rank-' + os.environ['RANK'], 'w').write('here')\n"
    )
    discovered = CliRunner().invoke(cli, ["discover", "--host", "head", "--json"], catch_exceptions=False)
    assert json.loads(discovered.stdout)["spec"]["queues"][0]["name"] == "train"
    words = ["submit", "--script", str(script), "--host", "head", "--nodes", "2", "--launcher", "srun", "--follow"]
    done = CliRunner().invoke(cli, [*words, "--remote-folder", str(tmp_path / "far")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "far").glob("own-*")
    assert {path.name for path in folder.glob("rank-*")} == {"rank-0", "rank-1"}
