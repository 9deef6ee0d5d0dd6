"""From an empty account to a running cluster and back, through the public commands alone, as processes that are killed
on the way. The stand-in is a process of its own: what AWS has outlives every command."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.parallelcluster.apply.pcluster import PINS, STAMP, cache_folder
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load
from trainwright.spec.model import Spec

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.yaml") if "platform: parallelcluster" in p.read_text())
SCALE = 600  # seconds of AWS in one of ours


@dataclass
class Server:
    """The stand-in's process, and the environment of a user who works with it."""

    endpoint: str
    environment: dict[str, str]

    @property
    def pcluster(self) -> Path:
        """Where `up` looks for its pcluster."""
        return Path(self.environment["XDG_CACHE_HOME"], "trainwright", cache_folder().name)

    def control(self, what: str, **asked: Any) -> Any:
        request = urllib.request.Request(f"{self.endpoint}/standin/{what}", data=json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def client(self, service: str, region: str) -> Any:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        return boto3.client(service, region_name=region, endpoint_url=self.endpoint, **keys)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "trainwright", *words], env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        done = self.start(*words)
        output, _ = done.communicate(timeout=240)
        assert done.returncode == 0, f"{words}: {output}"
        return output

    def killed(self, line: str, *words: str) -> None:
        """Run a command and kill it, with all it started, when it prints that line (or just before it ends)."""
        process = self.start(*words)
        assert process.stdout is not None
        for printed in process.stdout:
            if line in printed:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A stand-in for one test."""
    with stand_in(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A stand-in for tests that leave nothing in it, with the small pcluster."""
    with stand_in(tmp_path_factory.mktemp("server")) as started:
        program = started.pcluster / "bin" / "pcluster"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m standin.pcluster_program "$@"\n')
        program.chmod(0o755)
        (started.pcluster / STAMP).write_text(PINS.read_text())
        yield started


@contextlib.contextmanager
def stand_in(folder: Path) -> Iterator[Server]:
    """The process of the stand-in, and an empty home for its user."""
    ready = folder / "port"
    paths = [ROOT / "tests" / "aws", ROOT / "tests", ROOT / "src"]
    base = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "standin.server", str(ready), str(SCALE)]
    process = subprocess.Popen(command, env=base, stdin=subprocess.PIPE)
    try:
        while not ready.is_file():
            assert process.poll() is None, "the stand-in did not start"
            time.sleep(0.05)
        endpoint = f"http://127.0.0.1:{ready.read_text()}"
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_ENDPOINT_URL": endpoint}
        places = {"TRAINWRIGHT_HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
        yield Server(endpoint, {**base, **keys, **places})
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


def real_pcluster(server: Server) -> None:
    """The judges' pcluster, which has the same pins, where `up` looks for its own."""
    made = ROOT / ".venvs" / "pcluster"
    if not (made / STAMP).is_file() or (made / STAMP).read_text() != PINS.read_text():
        pytest.skip("the virtual environment of pcluster is not made: make test makes it")
    server.pcluster.parent.mkdir(parents=True)
    server.pcluster.symlink_to(made.resolve())


def prepare_account(server: Server, spec: Spec) -> None:
    """What a spec says is there already: reservations, buckets, scripts and images of the user's own."""
    region = spec.region or ""
    s3, ec2 = server.client("s3", region), server.client("ec2", region)
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    own = [s for holder in (spec.head, *spec.queues) for s in holder.scripts if s.source.startswith("s3://")]
    buckets = {item.bucket for item in spec.storage if item.bucket} | {script.source for script in own}
    for name in {address.removeprefix("s3://").split("/")[0] for address in buckets}:
        with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
            s3.create_bucket(Bucket=name, **place)
    for script in own:
        bucket, _, key = script.source.removeprefix("s3://").partition("/")
        s3.put_object(Bucket=bucket, Key=key, Body=b"#!/bin/bash\n")
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    ids = {zone["ZoneName"]: zone["ZoneId"] for zone in zones} | {zone["ZoneId"]: zone["ZoneId"] for zone in zones}
    for queue in spec.queues:
        kind, target = queue.capacity.kind, queue.capacity.id
        if kind in ("reservation", "block") and target and queue.count:
            more = {"ReservationType": "capacity-block"} if kind == "block" else {}
            server.control(
                "reserve", id=target, instance=queue.instance, zone_id=ids[spec.zone or zones[0]["ZoneName"]],
                count=queue.count.max, region=region, **more,
            )  # fmt: skip
    if spec.software.image.startswith("ami-"):
        tags = {"version": "3.16.1", "build_status": "available", "os": spec.software.os}
        rows = [{"Key": f"parallelcluster:{key}", "Value": value} for key, value in tags.items()]
        ec2.create_tags(Resources=[spec.software.image], Tags=rows)


def left(server: Server, region: str) -> dict[str, list[str]]:
    census = server.control("census", region=region)
    return {kind: names for kind, names in census.items() if names and kind not in ("log group", "bucket", "object")}


@contextlib.contextmanager
def slurm_behind_ssh(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real Slurm as the head node of the stand-in has it, behind a real sshd that `ssh head` reaches."""
    folder = Path(tempfile.mkdtemp(prefix="tww"))
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder / "home"))
    record = life.up(LocalCluster("far", (LocalQueue("train", 1, cpus=192, gpus=8),)), own_network=False)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/key\nAuthorizedKeysFile {folder}/key.pub\nStrictModes no\n"
        f"UsePAM no\nPidFile none\nPermitRootLogin yes\nSetEnv SLURM_CONF={record.conf}\n"
    )
    (folder / "ssh.conf").write_text(
        f"Host head\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {folder}/key\n"
        f" IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
    )
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh.conf "$@"\n')
    (folder / "ssh").chmod(0o755)
    server.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    os.makedirs("/run/sshd", exist_ok=True)
    words = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd.conf")]
    daemon = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert daemon.stderr is not None
        assert "Server listening" in daemon.stderr.readline()
        yield folder
    finally:
        control = ["-O", "exit", "-o", f"ControlPath={tempfile.gettempdir()}/tw-ssh-{os.getuid()}-%C", "head"]
        subprocess.run([str(folder / "ssh"), *control], capture_output=True)
        daemon.terminate()
        daemon.communicate()
        life.down("far", force=True)
        shutil.rmtree(folder)


JOB = """
  - name: hello
    command: [bash, -c, "echo hello from the node"]
    launcher: plain
    queue: train
    nodes: 1
    requeue: false
"""


def p5_spec(folder: Path) -> str:
    """The p5 starter with a short job. The Slurm behind the stand-in has no /fsx, so the job brings its own Python."""
    text = (ROOT / "examples" / "p5-reservation.yaml").read_text()
    return (
        text.replace("containers: enroot}", "containers: enroot, runtime: none}") + JOB + f"runs: {folder / 'runs'}\n"
    )


@pytest.mark.slow
@pytest.mark.judge
@pytest.mark.slurm
def test_from_an_empty_account_and_back_with_the_real_pcluster(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing_programs() or not shutil.which("sshd") or os.geteuid() != 0:
        pytest.skip("needs Slurm, sshd and root")
    real_pcluster(server)
    file = tmp_path / "p5.yaml"
    file.write_text(p5_spec(tmp_path))
    spec, _ = resolve(load(file).spec)
    prepare_account(server, spec)
    region = spec.region or ""
    server.run("plan", str(file), "-o", str(tmp_path / "plan"))
    dry = server.run("up", str(file), "--dry-run")
    assert "make             cluster p5-reservation" in dry
    assert left(server, region) == {}, "a dry run makes nothing"
    for line in ("network: creating", "network: ready", "lustre-fsx: ready", "cluster p5-reservation: creating"):
        server.killed(line, "up", str(file), "--yes")
    server.run("up", str(file), "--yes")
    whole = left(server, region)
    assert whole["instance"] == ["m5.8xlarge running x1", "p5.48xlarge running x4"]
    assert whole["file system"] == ["LUSTRE 4800 AVAILABLE x1", "OPENZFS 512 AVAILABLE x1"]
    assert all(name.endswith("x1") for kind in ("stack", "vpc", "nat", "address", "key") for name in whole[kind])
    status = json.loads(server.run("status", str(file), "--json"))
    assert (status["state"], status["queues"][0]["states"]) == ("running", {"running": 4})
    assert "p5-reservation" in server.run("status", "--all", "--region", region)
    before = own_seconds()
    assert "unchanged        cluster p5-reservation" in server.run("up", str(file), "--yes")
    assert own_seconds() - before < 3.0
    with slurm_behind_ssh(server, monkeypatch):
        submitted = server.run("submit", str(file), "hello", "--host", "head", "--follow")
    assert "completed, exit status 0" in submitted
    no_secrets(server, tmp_path)
    server.killed("cluster p5-reservation: removing", "down", str(file), "--yes")
    kept = server.run("down", str(file), "--yes")
    assert "left: stack p5-reservation-lustre-fsx" in kept
    data = [word for key in ("bucket", "lustre-fsx", "openzfs-home") for word in ("--delete-data", key)]
    server.killed("lustre-fsx: removing", "down", str(file), "--yes", *data)
    assert "nothing of p5-reservation is left" in server.run("down", str(file), "--yes", *data)
    assert left(server, region) == {}


def own_seconds() -> float:
    """The processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def no_secrets(server: Server, folder: Path) -> None:
    """No private key outside its own file, and every instance asks for IMDSv2."""
    (private,) = (folder / "home" / "keys").glob("my-key.us-east-2")
    assert private.stat().st_mode & 0o777 == 0o600
    secret = private.read_text().splitlines()[1]
    cache = folder / "cache"
    for path in folder.rglob("*"):
        if path.is_file() and path != private and not path.is_relative_to(cache):
            assert secret not in path.read_text(errors="replace"), path
    rows = server.client("ec2", "us-east-2").describe_instances()["Reservations"]
    assert all(i["MetadataOptions"]["HttpTokens"] == "required" for row in rows for i in row["Instances"])


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_comes_up_and_goes_down(shared_server: Server, example: str) -> None:
    server, file = shared_server, ROOT / "examples" / f"{example}.yaml"
    spec, _ = resolve(load(file).spec)
    prepare_account(server, spec)
    region = spec.region or ""
    server.run("up", str(file), "--yes")
    stacks = [line.split()[0] for line in left(server, region)["stack"]]
    assert spec.name in stacks
    keys = [stack.removeprefix(f"{spec.name}-") for stack in stacks]
    named = [key for key in keys if key.split("-")[0] in ("bucket", "lustre", "openzfs", "accounting")]
    server.run("down", str(file), "--yes", *[word for key in named for word in ("--delete-data", key)])
    assert left(server, region) == {}
