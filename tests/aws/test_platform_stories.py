"""Batch and EKS from a starter to an empty account again, through the public commands alone, as processes against the
stand-in; some of them are killed on the way."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from standin.outside import ROOT, Server, left, prepare_account, stand_in

from trainwright.spec.defaults import resolve
from trainwright.spec.load import load

sys.path[:0] = [str(ROOT / "tests" / "schedulers" / "kubernetes"), str(ROOT / "tests" / "control_plane")]
# It ends when it is cancelled.
WAITS = """
jobs:
  - name: hello
    command: [python3, -u, -c, "import os, signal; print('step 1 of node', os.environ['NODE_RANK']); signal.pause()"]
    launcher: plain
    nodes: 2
    container: registry.example.com/train:2026.11
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with stand_in(tmp_path) as started:
        yield started


def begin(server: Server, folder: Path, starter: str, jobs: str = "") -> Path:
    """init, check, plan and a dry run, which leave the account as it was. `jobs`: in place of the starter's."""
    file = folder / "spec.yaml"
    server.run("init", starter, "-o", str(file))
    text = file.read_text().partition("\njobs:")[0] + jobs if jobs else file.read_text()
    file.write_text(text + f"runs: {folder / 'runs'}\n")
    prepare_account(server, resolve(load(file).spec)[0])
    server.run("check", str(file))
    server.run("plan", str(file), "-o", str(folder / "plan"))
    dry = server.run("up", str(file), "--dry-run")
    assert "price: " in dry
    assert left(server, region_of(file)) == {}, "a dry run makes nothing"
    return file


def region_of(file: Path) -> str:
    return load(file).spec.region or ""


def write_log(server: Server, region: str, stream: str, *lines: str) -> None:
    """What Batch's agent writes: moto ends a job at once and runs no container."""
    logs = server.client("logs", region)
    logs.create_log_group(logGroupName="/aws/batch/job")
    logs.create_log_stream(logGroupName="/aws/batch/job", logStreamName=stream)
    events = [{"timestamp": int(time.time() * 1000), "message": line} for line in lines]
    logs.put_log_events(logGroupName="/aws/batch/job", logStreamName=stream, logEvents=events)


@pytest.mark.slow
def test_batch_from_a_starter_and_back(server: Server, tmp_path: Path) -> None:
    file = begin(server, tmp_path, "batch-p4d")
    region = region_of(file)
    for line in ("network: creating", "batch-train: creating"):
        server.killed(line, "up", str(file), "--yes")
    server.run("up", str(file), "--yes")
    whole = left(server, region)
    assert whole["job queue"] == ["batch-p4d-train ENABLED VALID x1"]
    assert "unchanged        stack batch-p4d-batch-train" in server.run("up", str(file), "--yes")
    status = json.loads(server.run("status", str(file), "--json"))
    assert (status["state"], status["platform"], status["queues"][0]["most"]) == ("running", "batch", 4)

    run = server.run("submit", str(file)).splitlines()[-1].strip()
    [job] = server.client("batch", region).list_jobs(jobQueue="batch-p4d-train", jobStatus="SUCCEEDED")[
        "jobSummaryList"
    ]
    described = server.client("batch", region).describe_jobs(jobs=[job["jobId"]])["jobs"][0]
    write_log(server, region, described["container"]["logStreamName"], "[rank0]:step 1", "the end")
    assert "[rank-0] step 1" in server.run("logs", run)

    server.control("hold", on=True)
    server.run("submit", str(file))
    busy = server.start("down", str(file), "--yes")
    output, _ = busy.communicate(timeout=240)
    assert busy.returncode == 1
    assert "jobs wait or run on cluster batch-p4d (1): batch-p4d-train: pretrain" in output
    assert left(server, region) == whole
    server.killed("batch-train: removing", "down", str(file), "--yes", "--force")
    kept = server.run("down", "batch-p4d", "--region", region, "--yes", "--force")
    assert "left: stack batch-p4d-lustre-fsx" in kept
    gone = server.run("down", str(file), "--yes", "--delete-data", "lustre-fsx")
    assert "nothing of batch-p4d is left" in gone
    assert left(server, region) == {}


@pytest.fixture
def kubernetes() -> Iterator[Any]:
    """The stub of the Kubernetes API that jobs go to."""
    from stub_api import Api, Handler

    api = Api(("127.0.0.1", 0), Handler)
    api.objects, api.pods, api.logs, api.asked = {}, [], {}, []
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    yield api
    api.shutdown()
    api.server_close()
    thread.join()


def install(server: Server, folder: Path, *names: str) -> None:
    """The stand-in's programs on the path of its user."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m standin.programs {name} "$@"\n')
        (folder / name).chmod(0o755)
    server.environment["PATH"] = f"{folder}:{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first test that asks for the API server may build it
@pytest.mark.parametrize("way", ["own", "eksctl"])
def test_eks_from_a_starter_and_back(server: Server, tmp_path: Path, kubernetes: Any, way: str) -> None:
    """By stacks of our own, jobs go to a real API server, where there is one, with tokens as EKS takes them; by eksctl
    to a stub."""
    with contextlib.ExitStack() as stack:
        real = real_api(stack, tmp_path / "api") if way == "own" else None
        _eks_story(server, tmp_path, kubernetes, real, way)


def real_api(stack: contextlib.ExitStack, folder: Path) -> Any:
    from api_server import ApiServerMissing
    from eks_api import eks_api

    try:
        return stack.enter_context(eks_api(folder, "eks-g5"))
    except ApiServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        return None


def _eks_story(server: Server, tmp_path: Path, kubernetes: Any, real: Any, way: str) -> None:
    endpoint = real.server if real else f"http://127.0.0.1:{kubernetes.server_port}"
    authority = base64.b64encode(real.certificate.read_bytes()).decode() if real else "bm9uZQ=="
    server.control("kubernetes", endpoint=endpoint, authority=authority)
    install(server, tmp_path / "bin", "kubectl", "helm", *(["eksctl"] if way == "eksctl" else []))
    file = begin(server, tmp_path, "eks-g5", WAITS if real else "")
    region = region_of(file)
    lines = ("control: creating", "chart kueue 0.19.2: creating") if way == "own" else ("node group system",)
    for line in lines:
        server.killed(line, "up", str(file), "--yes")
    made = server.run("up", str(file), "--yes")
    assert ("by eksctl" if way == "eksctl" else "eksctl is not on this machine's path") in made
    whole = left(server, region)
    assert whole["node group"] == ["eks-g5/system 2-3 2 x1"], "those of the queue come from Karpenter"
    assert any(release.startswith("karpenter") for release in whole["release"])
    assert all(release.endswith("deployed x1") for release in whole["release"])
    status = json.loads(server.run("status", "eks-g5", "--region", region, "--json"))
    assert (status["state"], status["platform"]) == ("running", "eks")

    run = server.run("submit", str(file)).splitlines()[-1].strip()
    if real:
        _lives(server, file, real, run)
    else:
        [path] = [path for path in kubernetes.objects if path.endswith(f"pytorchjobs/{run}")]
        kubernetes.pods.append(pod(f"{run}-master-0"))
        kubernetes.logs[f"{run}-master-0"] = "2026-11-15T00:00:01.000000001Z [rank0]:step 1\n"
        assert "step 1" in server.run("logs", run)
        assert kubernetes.objects[path]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "train"

    server.killed("removing", "down", str(file), "--yes")
    gone = server.run("down", str(file), "--yes", "--delete-data", "lustre-fsx")
    assert "nothing of eks-g5 is left" in gone
    assert left(server, region) == {}
    assert not list((tmp_path / "home" / "kube").iterdir())


def _lives(server: Server, file: Path, real: Any, run: str) -> None:
    """A job on the real API server: it starts on two nodes, is listed, says something, and is cancelled."""
    path = f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{run}"
    status, job = real.request("GET", path)
    assert (status, job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == (200, "train")
    until(lambda: all(f"step 1 of node {node}" in server.run("logs", run) for node in (0, 1)))
    until(lambda: [row["state"] for row in json.loads(server.run("jobs", str(file), "--json"))] == ["running"])
    assert (real.folder / "fsx/trainwright/runs").stat().st_mode & 0o7777 == 0o1777, "any user of an image may write"
    server.run("cancel", run)
    until(lambda: real.request("GET", path)[0] == 404)


def until(seen: Callable[[], bool]) -> None:
    """Each look is a command of its own, so there is nothing to wait for between them."""
    end = time.monotonic() + 120
    while not seen():
        assert time.monotonic() < end


@pytest.mark.slow
def test_hyperpod_on_eks_from_a_starter_and_back(server: Server, tmp_path: Path, kubernetes: Any) -> None:
    server.control("kubernetes", endpoint=f"http://127.0.0.1:{kubernetes.server_port}", authority="bm9uZQ==")
    install(server, tmp_path / "bin", "kubectl", "helm", "git")
    file = begin(server, tmp_path, "hyperpod-eks-p5")
    region = region_of(file)
    for line in ("control: creating", "HyperPod cluster hyperpod-eks-p5: creating"):
        server.killed(line, "up", str(file), "--yes")
    server.run("up", str(file), "--yes")
    whole = left(server, region)
    assert whole["hyperpod node"] == ["hyperpod-eks-p5 train ml.p5.48xlarge x4"]
    assert whole["release"][0] == "hyperpod-helm-chart-0.1.0 deployed x1"
    assert "unchanged        HyperPod cluster hyperpod-eks-p5" in server.run("up", str(file), "--yes")
    status = json.loads(server.run("status", "hyperpod-eks-p5", "--region", region, "--json"))
    assert (status["state"], status["platform"]) == ("running", "hyperpod-eks")

    run = server.run("submit", str(file)).splitlines()[-1].strip()
    [path] = [path for path in kubernetes.objects if path.endswith(f"pytorchjobs/{run}")]
    job = kubernetes.objects[path]
    assert job["metadata"]["annotations"]["sagemaker.amazonaws.com/enable-job-auto-resume"] == "true"
    selector = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"]
    assert selector["sagemaker.amazonaws.com/deep-health-check-status"] == "Passed"
    kubernetes.pods.append(pod(f"{run}-master-0"))
    kubernetes.logs[f"{run}-master-0"] = "2026-11-15T00:00:01.000000001Z [rank0]:step 1\n"
    assert "step 1" in server.run("logs", run)

    server.killed("removing", "down", str(file), "--yes")
    assert "left: stack hyperpod-eks-p5-lustre-fsx" in server.run("down", str(file), "--yes")
    data = ["--delete-data", "lustre-fsx", "--delete-data", "bucket"]
    assert "nothing of hyperpod-eks-p5 is left" in server.run("down", str(file), "--yes", *data)
    assert left(server, region) == {}


def pod(name: str) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}}
