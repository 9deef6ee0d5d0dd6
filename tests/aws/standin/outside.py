"""The stand-in as commands see it from outside: a process of its own, so that what AWS has outlives every command; the
environment of a user who works with it; and what that user's account has before the first command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from trainwright.platforms.parallelcluster.apply.pcluster import PINS, STAMP, cache_folder
from trainwright.spec.model import Spec

ROOT = Path(__file__).parents[3]
SCALE = 600  # seconds of AWS in one of ours
KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


@dataclass
class Server:
    """The stand-in's process, and the environment of a user who works with it. `look` is called at every line that a
    command prints, with the process, and once when it has ended."""

    endpoint: str
    folder: Path
    environment: dict[str, str]
    look: Callable[[subprocess.Popen[str]], None] = field(default=lambda process: None)

    @property
    def pcluster(self) -> Path:
        """Where `up` looks for its pcluster."""
        return Path(self.environment["XDG_CACHE_HOME"], "trainwright", cache_folder().name)

    def control(self, what: str, **asked: Any) -> Any:
        request = urllib.request.Request(f"{self.endpoint}/standin/{what}", data=json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def client(self, service: str, region: str) -> Any:
        return boto3.client(service, region_name=region, endpoint_url=self.endpoint, **KEYS)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "trainwright", *words], env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        """Run a command to its end; what it printed. It must succeed."""
        process = self.start(*words)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            self.look(process)
        status = process.wait(timeout=240)
        self.look(process)
        assert status == 0, f"{words}: {''.join(lines)}"
        return "".join(lines)

    def killed(self, line: str, *words: str) -> None:
        """Run a command and kill it, with all it started, when it prints that line (or just before it ends)."""
        process = self.start(*words)
        assert process.stdout is not None
        for printed in process.stdout:
            self.look(process)
            if line in printed:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


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
        keys = {name.upper(): value for name, value in KEYS.items()} | {"AWS_ENDPOINT_URL": endpoint}
        places = {"TRAINWRIGHT_HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
        yield Server(endpoint, folder, {**base, **keys, **places})
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


def small_pcluster(server: Server) -> None:
    """The stand-in's own pcluster where `up` looks for its own: seconds instead of half a minute."""
    program = server.pcluster / "bin" / "pcluster"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m standin.pcluster_program "$@"\n')
    program.chmod(0o755)
    (server.pcluster / STAMP).write_text(PINS.read_text())


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
        if kind == "group" and target and queue.count:
            members = [f"cr-0{number}1b2c3d4e5f67890" for number in range(2)]
            for id in members:
                server.control(
                    "reserve", id=id, instance=queue.instance, zone_id=ids[str(spec.zone)],
                    count=queue.count.max // 2, region=region,
                )  # fmt: skip
            server.control("group", name=target.rpartition("/")[2], reservations=members)
    if spec.software.image.startswith("ami-"):
        tags = {"version": "3.16.1", "build_status": "available", "os": spec.software.os}
        rows = [{"Key": f"parallelcluster:{key}", "Value": value} for key, value in tags.items()]
        ec2.create_tags(Resources=[spec.software.image], Tags=rows)


def left(server: Server, region: str) -> dict[str, list[str]]:
    census = server.control("census", region=region)
    return {kind: names for kind, names in census.items() if names and kind not in ("log group", "bucket", "file")}
